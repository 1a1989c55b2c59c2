package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// leave is the plan for a DaemonSet that is being deleted: the garbage collector ends
// its pods, nothing is made. In a foreground deletion the object stays until they are
// gone; it says which it waits for, and does not wait for those on nodes that no
// longer report: their kubelet ends them when it is back, or pod garbage collection
// when the node is gone.
func leave(in Input, plan *Plan) {
	if !slices.Contains(in.DaemonSet.Finalizers, metav1.FinalizerDeleteDependents) {
		return
	}
	nodes := map[string]*corev1.Node{}
	for _, n := range in.Nodes {
		nodes[n.Name] = n
	}
	pods := slices.Clone(in.Pods)
	slices.SortFunc(pods, comparePods)
	var waits []string
	for _, p := range pods {
		ref := metav1.GetControllerOf(p)
		if ref == nil || ref.UID != in.DaemonSet.UID || ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
			continue
		}
		node := fit.TargetNode(p)
		silent := nodes[node] == nil
		if !silent {
			status, _ := nodeReady(nodes[node])
			silent = status == corev1.ConditionUnknown
		}
		if p.DeletionTimestamp != nil && silent {
			plan.Actions = append(plan.Actions, Action{Verb: UnblockPod, Node: node, Pod: p, Reason: fit.Reason{Code: fit.NodeNotReady, Object: "pod/" + p.Name,
				Message: "its node no longer reports; the deletion does not wait for it"}})
			continue
		}
		waits = append(waits, node)
		plan.Roll = append(plan.Roll, Presence{Node: node, State: Excluded, Pod: p.Name, Ready: ready(p), Reasons: []fit.Reason{{Code: fit.DaemonSetDeleted,
			Object: "pod/" + p.Name, Message: "the DaemonSet is being deleted and waits for its pod to end"}}})
	}
	slices.SortFunc(plan.Roll, func(a, b Presence) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Pod, b.Pod)) })
	slices.Sort(waits)
	c := appsv1.DaemonSetCondition{Type: Reconciling, Status: corev1.ConditionTrue, Reason: string(fit.DaemonSetDeleted), Message: "being deleted; no pod is waited for"}
	if len(waits) > 0 {
		c.Message = fmt.Sprintf("being deleted; %d pods are waited for, on %s", len(waits), some(waits))
	}
	plan.Status.Conditions = setCondition(slices.Clone(plan.Status.Conditions), c, metav1.NewTime(in.Now.Truncate(time.Second)))
}
