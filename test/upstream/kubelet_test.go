package upstream

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	daemonutil "k8s.io/kubernetes/pkg/controller/daemon/util"
)

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// target is the node that a pod is on or is made for.
func target(p *corev1.Pod) string {
	name, err := daemonutil.GetTargetNodeName(p)
	if err != nil {
		return ""
	}
	return name
}

func ready(p *corev1.Pod) bool {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	return i >= 0 && p.Status.Conditions[i].Status == corev1.ConditionTrue
}

func setReady(p *corev1.Pod, is bool) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	if len(p.Status.Conditions) == 0 || p.Status.Conditions[0].Status != status {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: now()}}
	}
}

// reports says whether a node has a kubelet that works.
func reports(n *corev1.Node) bool {
	return len(n.Status.Conditions) > 0 && n.Status.Conditions[0].Status == corev1.ConditionTrue
}

// live moves every pod one step on: the scheduler binds it to its node, then the
// kubelet runs it, then it is ready unless its image is bad. What terminates ends.
// Objects whose owner is gone are collected.
func (w *world) live() {
	up := map[string]bool{}
	for _, n := range w.nodes() {
		up[n.Name] = reports(n)
	}
	w.sweep()
	ds := w.daemonSet()
	for _, p := range w.pods() {
		switch {
		case abandoned(p, ds):
			w.api.remove(pods, p)
		case !up[target(p)]:
		case p.DeletionTimestamp != nil:
			w.api.remove(pods, p)
		case p.Spec.NodeName == "":
			w.api.change(pods, p, func(o object) { o.(*corev1.Pod).Spec.NodeName = target(p) })
		case p.Status.Phase == corev1.PodPending:
			w.api.change(pods, p, func(o object) { o.(*corev1.Pod).Status.Phase = corev1.PodRunning })
		case !ended(p) && (len(p.Status.Conditions) == 0 || ready(p) == bad(p)):
			w.api.change(pods, p, func(o object) { setReady(o.(*corev1.Pod), !bad(p)) })
		}
	}
}

// ill is an annotation that keeps one pod from being ready.
const ill = "ill"

// bad says that a pod never becomes ready, for its image or by itself.
func bad(p *corev1.Pod) bool {
	return strings.Contains(p.Spec.Containers[0].Image, "bad") || p.Annotations[ill] != ""
}

// collect is pod garbage collection: pods bound to a node that is gone end.
func (w *world) collect() {
	exists := map[string]bool{}
	for _, n := range w.nodes() {
		exists[n.Name] = true
	}
	for _, p := range w.pods() {
		if p.Spec.NodeName != "" && !exists[p.Spec.NodeName] {
			w.api.remove(pods, p)
		}
	}
}
