package daemonset

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// update takes the next step of a rolling update, within the budget.
func (d *decision) update() {
	if d.in.DaemonSet.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return
	}
	if d.surges() {
		d.updateSurge()
		return
	}
	free := d.budget.MaxUnavailable - d.unavailable()
	for _, c := range d.candidates() {
		if c.free {
			d.remove(c.spot, c.pod, fit.OldRevision, "an old pod that was broken already is replaced")
		} else if free > 0 {
			free--
			d.remove(c.spot, c.pod, fit.OldRevision, "its turn in the rolling update")
		}
	}
}

// candidate is an old pod that the update may replace.
type candidate struct {
	spot *spot
	pod  *corev1.Pod
	free bool // replacing it takes no available pod away
}

// candidates come in a fixed order: broken ones, then the oldest, then by node.
func (d *decision) candidates() []candidate {
	var out []candidate
	for _, s := range d.spots {
		if s.node == nil || s.acted {
			continue
		}
		pods := s.running()
		if len(pods) != 1 || len(pods) != len(s.pods) || d.updated(pods[0]) || !s.verdict.ShouldRun {
			continue
		}
		out = append(out, candidate{spot: s, pod: pods[0], free: d.broken(pods[0])})
	}
	// A pod that is not ready but not broken yet waits: it may come back, and
	// counts against the budget meanwhile.
	out = slices.DeleteFunc(out, func(c candidate) bool { return !c.free && !d.available(c.pod) })
	slices.SortStableFunc(out, func(a, b candidate) int {
		return cmp.Or(compareBool(a.free, b.free), a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.spot.name, b.spot.name))
	})
	return out
}

// compareBool puts true first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func (s *spot) running() []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.pods {
		if p.DeletionTimestamp == nil && !ended(p) {
			out = append(out, p)
		}
	}
	return out
}

// unavailable counts the eligible nodes without an available pod, whatever made
// them so. A node that was down before its pod could be the cause does not count;
// one that went down after a pod of the new revision arrived does.
func (d *decision) unavailable() int {
	n := 0
	for _, s := range d.spots {
		if s.node == nil || !s.verdict.ShouldRun && len(s.pods) == 0 {
			continue
		}
		if !d.hasAvailable(s) && (s.verdict.ShouldRun || d.brokeNode(s)) && d.counts(s) {
			n++
		}
	}
	return n
}

func (d *decision) hasAvailable(s *spot) bool {
	if s.deleting() {
		return false
	}
	return slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && d.available(p) })
}

// deleting says that this plan takes the place's only pod.
func (s *spot) deleting() bool { return s.acted && len(s.running()) <= 1 }

func (d *decision) counts(s *spot) bool {
	ok, _ := nodeReady(s.node)
	return ok || d.brokeNode(s)
}

// brokeNode says that the node went down after a pod of the new revision was
// there: the update may be why.
func (d *decision) brokeNode(s *spot) bool {
	ok, since := nodeReady(s.node)
	if ok {
		return false
	}
	return slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool {
		return d.updated(p) && p.Spec.NodeName != "" && p.CreationTimestamp.Time.Before(since)
	})
}

// updateSurge creates new pods beside old ones; tidySurge ends the old ones.
func (d *decision) updateSurge() {
	surge := 0
	for _, s := range d.spots {
		if s.node != nil && len(s.running()) > 1 {
			surge++
		}
	}
	var waiting []candidate
	for _, s := range d.spots {
		pods := s.running()
		if s.node == nil || s.acted || !s.verdict.ShouldRun || len(pods) != 1 || len(s.pods) != 1 || d.updated(pods[0]) {
			continue
		}
		waiting = append(waiting, candidate{spot: s, pod: pods[0], free: d.broken(pods[0])})
	}
	slices.SortStableFunc(waiting, func(a, b candidate) int {
		return cmp.Or(compareBool(a.free, b.free), a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.spot.name, b.spot.name))
	})
	for _, c := range waiting {
		if c.free || surge < d.budget.MaxSurge {
			if !c.free {
				surge++
			}
			d.create(c.spot, fit.OldRevision, "a new pod beside the old one")
		}
	}
}
