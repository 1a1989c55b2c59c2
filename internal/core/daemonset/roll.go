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
		if s.node == nil {
			continue
		}
		p := Presence{Node: s.name}
		pod := d.shown(s)
		if pod != nil {
			p.Pod, p.Updated = pod.Name, d.updated(pod)
		}
		switch {
		case pod != nil && pod.DeletionTimestamp == nil && d.available(pod):
			p.State, p.Reasons = Present, s.verdict.Reasons
		case s.verdict.ShouldRun:
			p.State, p.Reasons = Missing, []fit.Reason{d.absence(s, pod)}
		default:
			p.State, p.Reasons = Excluded, s.verdict.Reasons
		}
		d.plan.Roll = append(d.plan.Roll, p)
	}
	slices.SortFunc(d.plan.Roll, func(a, b Presence) int { return cmp.Compare(a.Node, b.Node) })
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
		return fit.Reason{Code: fit.FailedBackoff, Message: fmt.Sprintf("its pod failed %d times; the next try is at %s",
			s.place.Failures, s.waits.UTC().Format(time.RFC3339))}
	}
	if p == nil {
		return fit.Reason{Code: fit.PodMissing, Message: "its pod is being created"}
	}
	reason := fit.Reason{Object: "pod/" + p.Name}
	switch {
	case p.DeletionTimestamp != nil:
		reason.Code, reason.Message = fit.PodTerminating, "its pod is terminating"
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

// waiting says what a bound pod that is not ready waits for.
func waiting(p *corev1.Pod) (fit.Code, string) {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			if w := c.State.Waiting; w != nil && w.Reason != "" {
				text := fmt.Sprintf("container %s: %s", c.Name, w.Reason)
				if w.Message != "" {
					text += ": " + w.Message
				}
				if t := c.LastTerminationState.Terminated; t != nil {
					text += fmt.Sprintf(" (last exit code %d, %s)", t.ExitCode, t.Reason)
				}
				return fit.ContainerWaits, text
			}
		}
	}
	if p.Status.Phase == corev1.PodPending || p.Status.Phase == "" {
		return fit.PodStarting, "its pod is starting"
	}
	return fit.PodNotReady, "its pod is running but not ready"
}
