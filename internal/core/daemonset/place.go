package daemonset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// The backoff after pods that ended: replacing them waits, twice as long each
// time, and all is forgotten after forgetFailures without another.
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
			d.create(s, fit.NodeEligible, "the node is eligible and has no pod")
		case s.verdict.ShouldContinue:
			d.tidy(s)
		default:
			for _, p := range s.pods {
				d.remove(s, p, fit.NodeNotEligible, "the node is no longer eligible")
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

// create makes the place's pod, but never in the same moment in which one that
// ended was deleted.
func (d *decision) create(s *spot, code fit.Code, why string) bool {
	if end := s.place.LastFailure.Add(firstBackoff); s.place.Failures > 0 && !d.reached(end) {
		s.waits = end
		return false
	}
	s.created = true
	d.act(CreatePod, s, d.newPod(s), code, why)
	return true
}

func (d *decision) remove(s *spot, p *corev1.Pod, code fit.Code, why string) {
	if p.DeletionTimestamp == nil && !d.removed[p.UID] {
		d.removed[p.UID] = true
		d.act(DeletePod, s, p, code, why)
	}
}

// tidy replaces pods that ended and removes duplicates.
func (d *decision) tidy(s *spot) {
	for _, p := range s.pods {
		if p.DeletionTimestamp == nil && ended(p) {
			d.removeEnded(s, p)
		}
	}
	running := d.running(s)
	// An available pod is never given up for one that is not.
	slices.SortStableFunc(running, func(a, b *corev1.Pod) int { return compareBool(d.available(a), d.available(b)) })
	if d.surges {
		d.tidySurge(s, running)
		return
	}
	for _, p := range running[min(1, len(running)):] {
		d.remove(s, p, fit.DuplicatePod, "the node has more than one pod")
	}
}

// tidySurge keeps the first pod of the wanted revision and the first other one,
// the other only until the wanted one is available or the other is broken.
func (d *decision) tidySurge(s *spot, running []*corev1.Pod) {
	if len(running) == 0 {
		if s.verdict.ShouldRun && allEnding(s.pods) {
			d.create(s, fit.NodeEligible, "the node's only pod is terminating")
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
			d.remove(s, p, fit.DuplicatePod, "the node has more than one pod of its kind")
			continue
		}
		*kept = p
	}
	if now != nil && before != nil && (d.broken(s, before) || d.available(now)) {
		d.remove(s, before, fit.SurgeDone, "the new pod takes its place")
	}
}

func allEnding(pods []*corev1.Pod) bool {
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			return false
		}
	}
	return true
}

// removeEnded deletes a pod that ended. One of the wanted revision waits for the
// place's backoff; a new template is a new chance and waits for nothing.
func (d *decision) removeEnded(s *spot, p *corev1.Pod) {
	if d.in.Now.Sub(s.place.LastFailure) > forgetFailures || !d.updated(p) {
		s.place.Failures = 0
	}
	if end := s.backoffEnd(); !d.reached(end) {
		s.waits = end
		return
	}
	s.place.Failures++
	s.place.LastFailure = d.in.Now
	code, message := fit.PodFailed, "the pod has failed"
	if p.Status.Phase == corev1.PodSucceeded {
		code, message = fit.PodSucceeded, "the pod has ended, which a daemon should not"
	}
	d.remove(s, p, code, message)
}

// backoffEnd is when the next pod that ended may be replaced: the first at once,
// the second a second later, and so on.
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
