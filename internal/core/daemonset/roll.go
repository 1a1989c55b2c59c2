package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// roll calls the roll: one line for each node that exists.
func (d *decision) roll() {
	for _, s := range d.spots {
		if s.node != nil {
			d.rolled = append(d.rolled, s)
			d.plan.Roll = append(d.plan.Roll, d.presence(s))
		}
	}
}

// cause is the code that says most about why the node is not as it should be.
func (p Presence) cause() fit.Code {
	if len(p.Reasons) == 0 {
		return fit.OldRevision // an old pod that goes in this very plan
	}
	return p.Reasons[len(p.Reasons)-1].Code
}

func (d *decision) presence(s *spot) Presence {
	p := Presence{Node: s.name}
	pod := d.shown(s)
	if i := slices.IndexFunc(s.pods, d.serves); i >= 0 {
		pod = s.pods[i]
	}
	if pod != nil {
		p.Pod, p.Ready, p.Updated = pod.Name, ready(pod), d.updated(pod)
	}
	switch {
	case pod != nil && d.serves(pod):
		p.State, p.Reasons = Present, s.verdict.Reasons
		if r := d.pending(s, pod); r != nil {
			p.Reasons = append(p.Reasons, *r)
		}
	case s.verdict.ShouldRun:
		p.State, p.Reasons = Missing, []fit.Reason{d.absence(s, pod)}
		if !d.nodeIsReady(s) && pod != nil {
			p.Reasons = slices.Insert(p.Reasons, 0, d.nodeDown(s))
		}
	default:
		p.State, p.Reasons = Excluded, s.verdict.Reasons
	}
	return p
}

func (d *decision) nodeDown(s *spot) fit.Reason {
	r := fit.Reason{Code: fit.NodeNotReady, Object: "node/" + s.name, Message: "the node is not ready"}
	if status, _ := nodeReady(s.node); status == corev1.ConditionUnknown {
		r.Message = "the node no longer reports"
	}
	if d.brokeNode(s) {
		r.Message += ", since after a pod of the wanted revision had started there"
	}
	return r
}

func (d *decision) serves(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && !ended(p) && d.available(p)
}

// shown is the one pod that stands for a place, upstream's choice.
func (d *decision) shown(s *spot) *corev1.Pod {
	if len(s.pods) == 0 {
		return nil
	}
	return s.pods[0]
}

// absence says why an eligible node has no available pod.
func (d *decision) absence(s *spot, p *corev1.Pod) fit.Reason {
	if !s.waits.IsZero() {
		return d.backoff(s, p)
	}
	if p == nil && s.place.Refused != "" {
		return fit.Reason{Code: fit.PodRefused, Message: "its pod is refused: " + s.place.Refused}
	}
	if p == nil {
		return fit.Reason{Code: fit.PodCreating, Message: "its pod is being created"}
	}
	reason := fit.Reason{Object: "pod/" + p.Name}
	switch {
	case p.DeletionTimestamp != nil:
		reason.Code, reason.Message = fit.Terminating, "its pod is terminating"
	case ended(p):
		reason.Code, reason.Message = fit.PodFailed, "its pod has ended: "+cmp.Or(p.Status.Reason, string(p.Status.Phase))
	case p.Spec.NodeName == "":
		reason.Code, reason.Message = fit.PodUnscheduled, "its pod waits for the scheduler"
		if c := condition(p, corev1.PodScheduled); c != nil && c.Message != "" {
			reason.Message = c.Message
		}
	case ready(p):
		reason.Code, reason.Message = fit.MinReadySeconds, "its pod is ready, but not yet for minReadySeconds"
	default:
		reason.Code, reason.Message = waiting(p)
	}
	return reason
}

func (d *decision) backoff(s *spot, p *corev1.Pod) fit.Reason {
	at := s.waits.UTC().Format(time.RFC3339)
	if p == nil {
		return fit.Reason{Code: fit.FailedBackoff, Message: "its pod ended and is gone; the next one is created at " + at}
	}
	return fit.Reason{Code: fit.FailedBackoff, Object: "pod/" + p.Name, Message: fmt.Sprintf("its pod has ended again (%s), after %d before it; it is replaced at %s",
		cmp.Or(p.Status.Reason, string(p.Status.Phase)), s.place.Failures, at)}
}

// waiting says what a bound pod that is not ready waits for.
func waiting(p *corev1.Pod) (fit.Code, string) {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			if w := c.State.Waiting; w != nil && w.Reason != "" {
				code := fit.ContainerWaiting
				if w.Reason == "CrashLoopBackOff" {
					code = fit.CrashLoop
				}
				text := fmt.Sprintf("container %s: %s", c.Name, w.Reason)
				if w.Message != "" {
					text += ": " + w.Message
				}
				if t := c.LastTerminationState.Terminated; t != nil {
					text += fmt.Sprintf(" (last exit code %d, %s)", t.ExitCode, t.Reason)
				}
				return code, text
			}
		}
	}
	if p.Status.Phase == corev1.PodPending || p.Status.Phase == "" {
		return fit.PodStarting, "its pod is starting"
	}
	return fit.NotReady, "its pod is running but not ready"
}
