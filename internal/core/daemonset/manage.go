package daemonset

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// The backoff after a pod that ended, upstream's: it doubles from the first to
// the last, and is forgotten after forgetFailures without another.
const (
	firstBackoff   = time.Second
	lastBackoff    = 15 * time.Minute
	forgetFailures = 2 * lastBackoff
)

// manage makes the number of pods right on every node.
func (d *decision) manage() {
	for _, s := range d.spots {
		switch {
		case s.node == nil:
			d.dropUnbound(s)
		case s.verdict.ShouldRun && len(s.pods) == 0:
			d.create(s, fit.Eligible, "the node is eligible and has no pod")
		case s.verdict.ShouldContinue:
			d.tidy(s)
		default:
			for _, p := range s.pods {
				d.remove(s, p, fit.NotEligible, "the node is no longer eligible")
			}
		}
	}
}

// dropUnbound deletes pods that wait for a node that is not there. Bound ones are
// left to pod garbage collection.
func (d *decision) dropUnbound(s *spot) {
	for _, p := range s.pods {
		if p.Spec.NodeName == "" {
			d.remove(s, p, fit.NodeGone, "its node does not exist")
		}
	}
}

func (d *decision) create(s *spot, code fit.Code, why string) {
	if end := s.backoffEnd(); end.After(d.in.Now) {
		s.waits = end
		d.wake(end)
		return
	}
	d.act(CreatePod, s, d.newPod(s), code, why)
}

func (d *decision) remove(s *spot, p *corev1.Pod, code fit.Code, why string) {
	if p.DeletionTimestamp == nil {
		d.act(DeletePod, s, p, code, why)
	}
}

// tidy replaces pods that ended and removes duplicates.
func (d *decision) tidy(s *spot) {
	var running []*corev1.Pod
	terminating := false
	for _, p := range s.pods {
		switch {
		case p.DeletionTimestamp != nil:
			terminating = true
		case ended(p):
			d.removeEnded(s, p)
		default:
			running = append(running, p)
		}
	}
	if d.surges() {
		d.tidySurge(s, running, terminating)
		return
	}
	for _, p := range running[min(1, len(running)):] {
		d.remove(s, p, fit.DuplicatePod, "the node has more than one pod")
	}
}

// tidySurge keeps one pod of the wanted revision and one of another, the other
// only until the wanted one is available.
func (d *decision) tidySurge(s *spot, running []*corev1.Pod, terminating bool) {
	if len(running) == 0 {
		if s.verdict.ShouldRun && terminating && !s.acted {
			d.create(s, fit.Eligible, "the node's only pod is terminating")
		}
		return
	}
	var now, before *corev1.Pod
	for _, p := range running {
		kept := &before
		if d.updated(p) {
			kept = &now
		}
		if *kept != nil {
			d.remove(s, p, fit.DuplicatePod, "the node has more than one pod of the revision")
			continue
		}
		*kept = p
	}
	if now != nil && before != nil && (!ready(before) || d.available(now)) {
		d.remove(s, before, fit.SurgeDone, "the new pod takes its place")
	}
}

func (d *decision) surges() bool { return d.budget.MaxSurge > 0 }

// removeEnded deletes a pod that ended, and lets the place rest before the next
// such deletion.
func (d *decision) removeEnded(s *spot, p *corev1.Pod) {
	if s.acted {
		return // one at a time, as all pods of a place share its backoff
	}
	if end := s.backoffEnd(); end.After(d.in.Now) {
		s.waits = end
		d.wake(end)
		return
	}
	if d.in.Now.Sub(s.place.LastFailure) > forgetFailures {
		s.place.Failures = 0
	}
	s.place.Failures++
	s.place.LastFailure = d.in.Now
	code := fit.PodFailed
	if p.Status.Phase == corev1.PodSucceeded {
		code = fit.PodSucceeded
	}
	d.remove(s, p, code, "the pod has ended")
}

// backoffEnd is when the place may be tried again: the first failure is replaced
// at once, the second a second after it, and so on.
func (s *spot) backoffEnd() time.Time {
	if s.place.Failures == 0 {
		return time.Time{}
	}
	wait := firstBackoff
	for i := int32(1); i < s.place.Failures && wait < lastBackoff; i++ {
		wait *= 2
	}
	return s.place.LastFailure.Add(min(wait, lastBackoff))
}
