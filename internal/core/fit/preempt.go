package fit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Priority is a pod's, 0 where admission has set none.
func Priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Victims are the pods of lower priority that have to go so that the pod has room,
// as few and as unimportant as possible; budgets are kept as far as that goes. none
// says why there are none.
func (r Room) Victims(p *corev1.Pod, budgets []*policyv1.PodDisruptionBudget) (victims []*corev1.Pod, none string) {
	if p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == corev1.PreemptNever {
		return nil, "not eligible due to preemptionPolicy=Never."
	}
	for _, o := range r.Pods {
		if o.DeletionTimestamp != nil && Priority(o) < Priority(p) && p.Status.NominatedNodeName == r.Node.Name && preempted(o) {
			return nil, "not eligible due to a terminating pod on the nominated node."
		}
	}
	var lower, kept []*corev1.Pod
	for _, o := range r.Pods {
		if o.UID != p.UID && Priority(o) < Priority(p) && o.Spec.NodeName != "" {
			lower = append(lower, o)
		} else {
			kept = append(kept, o)
		}
	}
	if len(lower) == 0 {
		return nil, "No preemption victims found for incoming pod"
	}
	bare := r
	bare.Pods, bare.Averse = kept, without(r.Averse, lower)
	if len(bare.Obstacles(p)) > 0 {
		return nil, "No preemption victims found for incoming pod"
	}
	slices.SortStableFunc(lower, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(Priority(b), Priority(a)), startOf(a).Compare(startOf(b).Time), cmp.Compare(a.Name, b.Name))
	})
	breaking, free := byBudget(lower, budgets)
	for _, o := range slices.Concat(breaking, free) {
		with := bare
		with.Pods, with.Averse = append(slices.Clip(bare.Pods), o), without(r.Averse, without(lower, append(slices.Clip(bare.Pods), o)))
		if len(with.Obstacles(p)) == 0 {
			bare = with
		} else {
			victims = append(victims, o)
		}
	}
	return victims, ""
}

// preempted says that a pod is going because a scheduler wants its room.
func preempted(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler {
			return true
		}
	}
	return false
}

func startOf(p *corev1.Pod) metav1.Time {
	if p.Status.StartTime != nil {
		return *p.Status.StartTime
	}
	return p.CreationTimestamp
}

func without(all, gone []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range all {
		if !slices.Contains(gone, p) {
			out = append(out, p)
		}
	}
	return out
}

// byBudget tells pods whose end would break a budget from the others.
func byBudget(pods []*corev1.Pod, budgets []*policyv1.PodDisruptionBudget) (breaking, free []*corev1.Pod) {
	left := make([]int32, len(budgets))
	for i, b := range budgets {
		left[i] = b.Status.DisruptionsAllowed
	}
	for _, p := range pods {
		breaks := false
		for i, b := range budgets {
			s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil || b.Namespace != p.Namespace || s.Empty() || !s.Matches(labels.Set(p.Labels)) {
				continue
			}
			if _, going := b.Status.DisruptedPods[p.Name]; going {
				continue
			}
			if left[i]--; left[i] < 0 {
				breaks = true
			}
		}
		if breaks {
			breaking = append(breaking, p)
		} else {
			free = append(free, p)
		}
	}
	return breaking, free
}

// Unschedulable is the message on a pod that cannot be on its node: upstream's form
// first, of nodes in all, then what is asked, free and held by whom on the one node
// that matters. preemption is why no other pod goes.
func Unschedulable(nodes int, node string, why []Obstacle, preemption string) string {
	var counts, details []string
	for _, o := range why {
		if c := "1 " + o.Upstream; !slices.Contains(counts, c) {
			counts = append(counts, c)
		}
		details = append(details, o.Message)
	}
	if nodes > 1 {
		counts = append(counts, fmt.Sprintf("%d node(s) didn't satisfy plugin(s) [NodeAffinity]", nodes-1))
	}
	slices.Sort(counts)
	out := fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(counts, ", "))
	switch {
	case strings.HasPrefix(preemption, "not eligible"):
		out += " preemption: " + preemption
	case preemption != "":
		tail := []string{"1 " + preemption}
		if nodes > 1 {
			tail = append(tail, fmt.Sprintf("%d Preemption is not helpful for scheduling", nodes-1))
		}
		out += fmt.Sprintf(" preemption: 0/%d nodes are available: %s.", nodes, strings.Join(tail, ", "))
	default:
		out += fmt.Sprintf(" preemption: 0/%d nodes are available: %d Preemption is not helpful for scheduling.", nodes, nodes)
	}
	return out + fmt.Sprintf(" Node %s: %s.", node, strings.Join(details, "; "))
}
