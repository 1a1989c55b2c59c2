package daemonset

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

const generationLabel = "pod-template-generation"

// maxBase is how much of a DaemonSet's name goes into its pods' names: a name
// serves as host name, of 63 characters at most.
const maxBase = 52

// newPod is the pod for a place, complete but for what admission adds.
func (d *decision) newPod(s *spot) *corev1.Pod {
	ds := d.in.DaemonSet
	t := ds.Spec.Template.DeepCopy()
	l := maps.Clone(t.Labels)
	if l == nil {
		l = map[string]string{}
	}
	l[hashLabel] = d.hash
	if g := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; g != "" {
		l[generationLabel] = g
	}
	t.Spec.Tolerations = fit.DaemonTolerations(&t.Spec)
	fit.PinToNode(&t.Spec, s.name)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: d.podName(s), Labels: l, Annotations: t.Annotations,
			Finalizers: slices.Clone(t.Finalizers), OwnerReferences: owner(ds)},
		Spec: t.Spec,
	}
}

// podName is derived from the place, the revision and the last pod seen in the
// place: a create that is repeated cannot make a second pod.
func (d *decision) podName(s *spot) string {
	h := fnv.New64a()
	for _, part := range []string{string(d.in.DaemonSet.UID), string(s.node.UID), d.hash, string(s.place.LastPod), strconv.Itoa(int(s.place.Salt))} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	base := d.in.DaemonSet.Name
	if len(base) > maxBase {
		base = base[:maxBase]
	}
	return base + "-" + suffix(h.Sum64())
}

// suffix is ten characters of the alphabet that names no words.
func suffix(sum uint64) string {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], sum)
	out := make([]byte, 10)
	for i := range out {
		out[i] = byte('0' + sum%27)
		sum /= 27
	}
	return rand.SafeEncodeString(string(out))
}

func (d *decision) updated(p *corev1.Pod) bool {
	g := d.in.DaemonSet.Annotations[appsv1.DeprecatedTemplateGeneration]
	return p.Labels[hashLabel] == d.hash || (g != "" && p.Labels[generationLabel] == g)
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

// available is upstream's: ready for minReadySeconds. A pod on its way there
// wakes the DaemonSet.
func (d *decision) available(p *corev1.Pod) bool {
	if !ready(p) {
		return false
	}
	if d.minReady() == 0 {
		return true
	}
	at := condition(p, corev1.PodReady).LastTransitionTime.Add(d.minReady())
	if at.After(d.in.Now) {
		d.wake(at)
		return false
	}
	return true
}

// minBroken is the least time without readiness after which a pod counts as
// broken: a restart or a missed probe is not yet a fault.
const minBroken = 10 * time.Second

// broken says that replacing the pod takes nothing away: it is not ready and has
// not been for a while. Younger ones still count as what they may become.
func (d *decision) broken(p *corev1.Pod) bool {
	if ready(p) {
		return false
	}
	since := p.CreationTimestamp.Time
	if c := condition(p, corev1.PodReady); c != nil {
		since = c.LastTransitionTime.Time
	}
	at := since.Add(max(d.minReady(), minBroken))
	if at.After(d.in.Now) {
		d.wake(at)
		return false
	}
	return true
}

func nodeReady(n *corev1.Node) (bool, time.Time) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}
