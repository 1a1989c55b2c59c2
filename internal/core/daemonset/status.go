package daemonset

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The condition types that Rollcall sets; all others are left as they are.
const (
	Available   appsv1.DaemonSetConditionType = "Available"
	Progressing appsv1.DaemonSetConditionType = "Progressing"
	Reconciling appsv1.DaemonSetConditionType = "Reconciling"
	Stalled     appsv1.DaemonSetConditionType = "Stalled"
)

// status counts as upstream counts: one pod is looked at for each node, and what
// stands before the plan is carried out.
func (d *decision) status() {
	ds, old := d.in.DaemonSet, &d.plan.Status
	s := appsv1.DaemonSetStatus{ObservedGeneration: ds.Generation, CollisionCount: old.CollisionCount, Conditions: slices.Clone(old.Conditions)}
	for _, spot := range d.spots {
		if spot.node == nil {
			continue
		}
		pod := d.shown(spot)
		switch {
		case !spot.verdict.ShouldRun && pod != nil:
			s.NumberMisscheduled++
		case spot.verdict.ShouldRun:
			s.DesiredNumberScheduled++
			if pod != nil {
				d.count(&s, pod)
			}
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	d.conditions(&s)
	d.plan.Status = s
}

func (d *decision) count(s *appsv1.DaemonSetStatus, pod *corev1.Pod) {
	s.CurrentNumberScheduled++
	if ready(pod) {
		s.NumberReady++
		if d.available(pod) {
			s.NumberAvailable++
		}
	}
	if d.updated(pod) {
		s.UpdatedNumberScheduled++
	}
}

func (d *decision) conditions(s *appsv1.DaemonSetStatus) {
	available := appsv1.DaemonSetCondition{Type: Available, Status: corev1.ConditionTrue, Reason: "MinimumNodesAvailable",
		Message: "no more nodes are without an available pod than the update strategy allows"}
	if int(s.NumberUnavailable) > d.maxUnavailable {
		var missing []string
		for _, p := range d.plan.Roll {
			if p.State == Missing {
				missing = append(missing, p.Node+" ("+string(p.cause())+")")
			}
		}
		available.Status, available.Reason = corev1.ConditionFalse, "NodesUnavailable"
		available.Message = fmt.Sprintf("more than %d nodes are without an available pod: %s", d.maxUnavailable, some(missing))
	}
	for _, c := range append([]appsv1.DaemonSetCondition{available}, d.rolloutConditions...) {
		s.Conditions = setCondition(s.Conditions, c, metav1.NewTime(d.in.Now.Truncate(time.Second)))
	}
}

func setCondition(list []appsv1.DaemonSetCondition, c appsv1.DaemonSetCondition, now metav1.Time) []appsv1.DaemonSetCondition {
	i := slices.IndexFunc(list, func(o appsv1.DaemonSetCondition) bool { return o.Type == c.Type })
	if i < 0 {
		c.LastTransitionTime = now
		return append(list, c)
	}
	c.LastTransitionTime = list[i].LastTransitionTime
	if list[i].Status != c.Status {
		c.LastTransitionTime = now
	}
	list[i] = c
	return list
}
