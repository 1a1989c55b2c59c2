package daemonset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What follows reads the rules once more, without the code that is tested. It
// knows only what the walk does: whole numbers as budgets, the label app=agent, no
// tolerations.

func wanted(n *corev1.Node) bool {
	return n.DeletionTimestamp == nil && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
}

func healthy(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// up says whether a pod is the DaemonSet's, or may be adopted, and is available.
func (in Input) up(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || !in.mine(p) || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return in.longReady(p)
}

func (in Input) longReady(p *corev1.Pod) bool {
	wait := time.Duration(in.DaemonSet.Spec.MinReadySeconds) * time.Second
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && (wait == 0 || !in.Now.Before(c.LastTransitionTime.Add(wait)))
	})
}

func (in Input) mine(p *corev1.Pod) bool {
	ref := metav1.GetControllerOf(p)
	return p.Labels["app"] == "agent" && (ref != nil && ref.UID == in.DaemonSet.UID || ref == nil && p.DeletionTimestamp == nil)
}

// serves says whether a node has an available pod, of those not left out.
func (in Input) serves(n *corev1.Node, leftOut ...*corev1.Pod) bool {
	return slices.ContainsFunc(in.Pods, func(p *corev1.Pod) bool {
		return target(p) == n.Name && in.up(p) && !slices.ContainsFunc(leftOut, func(o *corev1.Pod) bool { return o.UID == p.UID })
	})
}

// budget is how many nodes an update may leave without an available pod: none when
// it surges, or when only people delete.
func (in Input) budget() int {
	s := in.DaemonSet.Spec.UpdateStrategy
	if s.Type != appsv1.RollingUpdateDaemonSetStrategyType || s.RollingUpdate.MaxSurge != nil && *s.RollingUpdate.MaxSurge != intstr.FromInt32(0) {
		return 0
	}
	return s.RollingUpdate.MaxUnavailable.IntValue()
}

func deleted(plan Plan) []*corev1.Pod {
	var out []*corev1.Pod
	for _, a := range plan.Actions {
		if a.Verb == DeletePod {
			out = append(out, a.Pod)
		}
	}
	return out
}

// counters are the status as upstream counts: the first pod of each node stands
// for it.
func (in Input) counters(hash string) appsv1.DaemonSetStatus {
	s := appsv1.DaemonSetStatus{ObservedGeneration: in.DaemonSet.Generation}
	for _, n := range in.Nodes {
		pods := slices.DeleteFunc(slices.Clone(in.Pods), func(p *corev1.Pod) bool {
			return !in.mine(p) || target(p) != n.Name || p.DeletionTimestamp != nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
		})
		if !wanted(n) {
			s.NumberMisscheduled += int32(min(1, len(pods)))
			continue
		}
		s.DesiredNumberScheduled++
		if len(pods) == 0 {
			continue
		}
		p := slices.MinFunc(pods, func(a, b *corev1.Pod) int {
			bound := func(p *corev1.Pod) int { return min(1, len(p.Spec.NodeName)) }
			return cmp.Or(cmp.Compare(bound(b), bound(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		s.CurrentNumberScheduled++
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
			s.NumberReady++
		}
		if in.longReady(p) {
			s.NumberAvailable++
		}
		if in.current(p, hash) {
			s.UpdatedNumberScheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	return s
}

// current says whether a pod is of the wanted revision.
func (in Input) current(p *corev1.Pod, hash string) bool {
	return p.Labels[hashLabel] == hash || p.Labels[generationLabel] == in.DaemonSet.Annotations[appsv1.DeprecatedTemplateGeneration]
}

// bare are the counters alone.
func bare(s appsv1.DaemonSetStatus) appsv1.DaemonSetStatus {
	s.Conditions, s.CollisionCount = nil, nil
	return s
}
