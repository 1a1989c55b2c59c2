package daemonset

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

const (
	hashLabel       = appsv1.ControllerRevisionHashLabelKey
	generationLabel = "pod-template-generation"
)

// newPod is the pod for a place, complete but for what admission adds.
func (d *decision) newPod(s *spot) *corev1.Pod {
	ds := d.in.DaemonSet
	t := ds.Spec.Template.DeepCopy()
	for d.taken[podName(ds, s.node.UID, d.hash, s.place)] {
		s.place.Salt++ // an earlier pod that is no longer the DaemonSet's has that name
	}
	t.Spec.Tolerations = fit.DaemonTolerations(&t.Spec)
	fit.PinToNode(&t.Spec, s.name)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: podName(ds, s.node.UID, d.hash, s.place), Labels: d.podLabels(),
			Annotations: t.Annotations, Finalizers: slices.Clone(t.Finalizers), OwnerReferences: owner(ds)},
		Spec: t.Spec,
	}
}

// podLabels are the labels of the pods of the wanted revision.
func (d *decision) podLabels() map[string]string {
	l := withHash(d.in.DaemonSet.Spec.Template.Labels, d.hash)
	if g, ok := generation(d.in.DaemonSet); ok {
		l[generationLabel] = g
	}
	return l
}

// withHash returns the labels with the hash of a revision. There may be none: a
// selector can ask that a label does not exist.
func withHash(labels map[string]string, hash string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[hashLabel] = hash
	return out
}

func owner(ds *appsv1.DaemonSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
}

// generation is the template generation that the API server keeps as an
// annotation; one that is no number is none.
func generation(ds *appsv1.DaemonSet) (string, bool) {
	n, err := strconv.ParseInt(ds.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	return strconv.FormatInt(n, 10), err == nil
}

func (d *decision) updated(p *corev1.Pod) bool {
	if d.hash != "" && p.Labels[hashLabel] == d.hash {
		return true
	}
	g, ok := generation(d.in.DaemonSet)
	return ok && p.Labels[generationLabel] == g
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func ready(p *corev1.Pod) bool {
	c := condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func (d *decision) minReady() time.Duration {
	return time.Duration(d.in.DaemonSet.Spec.MinReadySeconds) * time.Second
}

// available means ready for minReadySeconds. A pod on its way there wakes the
// DaemonSet.
func (d *decision) available(p *corev1.Pod) bool {
	if !ready(p) {
		return false
	}
	if d.minReady() == 0 {
		return true
	}
	return d.reached(condition(p, corev1.PodReady).LastTransitionTime.Add(d.minReady()))
}

// minBroken is the least time without readiness after which a pod counts as
// broken: a restart or a missed probe is not yet a fault.
const minBroken = 10 * time.Second

// broken says that replacing the pod takes nothing away: it is not ready and has
// not been for a while. Younger ones still count as what they may become. The time
// before the node itself became ready tells nothing about the pod.
func (d *decision) broken(s *spot, p *corev1.Pod) bool {
	if ready(p) {
		return false
	}
	since := p.CreationTimestamp.Time
	if c := condition(p, corev1.PodReady); c != nil && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	if status, at := nodeReady(s.node); status == corev1.ConditionTrue && at.After(since) {
		since = at
	}
	return d.reached(since.Add(max(d.minReady(), minBroken)))
}

// reached says whether a time has come; if not, the plan wakes then.
func (d *decision) reached(t time.Time) bool {
	if !t.After(d.in.Now) {
		return true
	}
	if d.plan.Wake.IsZero() || t.Before(d.plan.Wake) {
		d.plan.Wake = t
	}
	return false
}

// nodeReady is the node's Ready condition and since when it has stood. A node
// that has none has not reported, which is Unknown.
func nodeReady(n *corev1.Node) (corev1.ConditionStatus, time.Time) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status, c.LastTransitionTime.Time
		}
	}
	return corev1.ConditionUnknown, time.Time{}
}

// comparePods orders bound before unbound, then by age, then by name.
func comparePods(a, b *corev1.Pod) int {
	return cmp.Or(compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
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
