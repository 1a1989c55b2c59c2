package daemonset

import (
	"fmt"
	"math"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// oddInput rolls a small set of facts that no sane user would make, some of which
// the API server would not take. Names and UIDs are unique, as they are there; one
// pod has no name, and so may the DaemonSet.
func oddInput(d dice) Input {
	o := odd{d, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	in := Input{Now: o.now, DaemonSet: o.daemonSet()}
	for i := range d.roll(5, "nodes") {
		in.Nodes = append(in.Nodes, o.node(i))
	}
	for i := range d.roll(4, "revisions") {
		in.Revisions = append(in.Revisions, o.revision(i, in.DaemonSet))
	}
	for i := range d.roll(7, "pods") {
		in.Pods = append(in.Pods, o.pod(i, in.DaemonSet))
	}
	for i := range d.roll(4, "places") {
		in.Places = append(in.Places, Place{Node: name(i), LastPod: types.UID(fmt.Sprint("pod", d.roll(8, "last"))), Salt: int32(d.roll(3, "salt") - 1),
			Failures: pick(d, "failures", int32(0), 1, 5, 1000), LastFailure: o.time()})
	}
	return in
}

// mostly picks what is usual, or one of the others.
func mostly[T any](d dice, what string, usual T, others ...T) T {
	if d.roll(2, what) == 0 {
		return usual
	}
	return pick(d, what, others...)
}

type odd struct {
	dice
	now time.Time
}

func (o odd) time() time.Time {
	return pick[time.Time](o.dice, "time", o.now.Add(-time.Hour), o.now, o.now.Add(-5*time.Second), o.now.Add(-12*time.Second), o.now.Add(time.Hour), time.Time{})
}

func (o odd) deletion() *metav1.Time {
	if !rarely(o.dice, 8, "deleting") {
		return nil
	}
	return &metav1.Time{Time: o.time()}
}

func (o odd) labels() map[string]string {
	return mostly(o.dice, "labels", map[string]string{"app": "agent"}, nil, map[string]string{}, map[string]string{"app": "other"},
		map[string]string{"app": "agent", hashLabel: "old"}, map[string]string{"app": "agent", hashLabel: ""}, map[string]string{"app": "agent", generationLabel: "1"})
}

func (o odd) selector() *metav1.LabelSelector {
	asks := func(key string, op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	return mostly(o.dice, "selector", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, nil, &metav1.LabelSelector{},
		asks("x", metav1.LabelSelectorOpDoesNotExist), asks("app", metav1.LabelSelectorOpIn), asks("app", "Likes", "agent"), asks("", metav1.LabelSelectorOpExists),
		asks(hashLabel, metav1.LabelSelectorOpDoesNotExist), asks("app", metav1.LabelSelectorOpNotIn, "other"), asks(generationLabel, metav1.LabelSelectorOpNotIn, "1"))
}

func (o odd) daemonSet() *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: mostly(o.dice, "name", "agent", "", strings.Repeat("long.-", 12)), UID: "ds-uid",
		Generation: int64(o.roll(3, "generation")), DeletionTimestamp: o.deletion()}}
	ds.Annotations = mostly(o.dice, "generation", map[string]string{appsv1.DeprecatedTemplateGeneration: "1"}, nil,
		map[string]string{appsv1.DeprecatedTemplateGeneration: "+1"}, map[string]string{appsv1.DeprecatedTemplateGeneration: "one"}, map[string]string{"state.rollcall.dev/x": "y"})
	s := &ds.Spec
	s.Selector, s.Template.Labels, s.Template.Spec = o.selector(), o.labels(), o.podSpec()
	s.MinReadySeconds = mostly(o.dice, "minReadySeconds", int32(0), 5, 20, -5, math.MaxInt32, math.MinInt32)
	s.RevisionHistoryLimit = mostly(o.dice, "history", nil, number(0), number(1), number(-1), number(math.MinInt32))
	s.UpdateStrategy.Type = mostly(o.dice, "type", appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType, "", "Recreate")
	if !rarely(o.dice, 4, "no rollingUpdate") {
		s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: o.amount(), MaxSurge: o.amount()}
	}
	ds.Status.CollisionCount = pick(o.dice, "collisions", nil, number(0), number(3), number(-1), number(math.MaxInt32))
	ds.Status.Conditions = pick(o.dice, "conditions", nil, []appsv1.DaemonSetCondition{{}, {Type: Available}, {Type: Available}})
	return ds
}

func number(n int32) *int32 { return &n }

func (o odd) amount() *intstr.IntOrString {
	s := pick(o.dice, "amount", "0", "1", "nil", "2", "10%", "-3", "2147483647", "100%", "101%", "-50%", "%", "", "five", "0x10", "99999999999999999999%", "9223372036854775807%", "1.5%")
	if s == "nil" {
		return nil
	}
	v := intstr.Parse(s)
	return &v
}

func (o odd) podSpec() corev1.PodSpec {
	s := corev1.PodSpec{Affinity: o.affinity(), HostNetwork: o.roll(2, "hostNetwork") == 1}
	s.NodeName = pick(o.dice, "nodeName", "", "", "", "n1", "elsewhere")
	s.NodeSelector = mostly(o.dice, "nodeSelector", nil, nil, map[string]string{"": ""}, map[string]string{"zone": "a"})
	s.Tolerations = pick(o.dice, "tolerations", nil, []corev1.Toleration{{}}, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, []corev1.Toleration{{Key: "x", Operator: "Lt", Value: "y"}})
	if o.roll(2, "containers") == 1 {
		s.Containers = []corev1.Container{{}}
	}
	return s
}

func (o odd) affinity() *corev1.Affinity {
	asks := func(r ...corev1.NodeSelectorRequirement) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: r}}}}}
	}
	return mostly(o.dice, "affinity", nil, nil, &corev1.Affinity{}, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}},
		asks(), asks(corev1.NodeSelectorRequirement{}), asks(corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpGt, Values: []string{"many"}}),
		asks(corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn}), pinned("n1"), pinned(""), pinned("n1", "n2"), pinned())
}

func pinned(names ...string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: names}}}}}}}
}

func (o odd) node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i), UID: types.UID(name(i)), DeletionTimestamp: o.deletion()}}
	n.Labels = mostly(o.dice, "labels", nil, map[string]string{"zone": "a"}, map[string]string{"": "", "zone": "9"})
	n.Spec.Taints = mostly(o.dice, "taints", nil, nil, []corev1.Taint{{}}, []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}},
		[]corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}, {Key: "x", Value: "y", Effect: corev1.TaintEffectPreferNoSchedule}}, []corev1.Taint{{Effect: "Odd"}})
	if status := pick(o.dice, "ready", corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown, "", "nil"); status != "nil" {
		n.Status.Conditions = []corev1.NodeCondition{{}, {Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(o.time())}}
	}
	return n
}

// owners are none, the DaemonSet, another, or one that controls nothing.
func (o odd) owners(ds *appsv1.DaemonSet) []metav1.OwnerReference {
	other := owner(ds)
	other[0].UID = "other"
	return mostly(o.dice, "owner", owner(ds), nil, other, []metav1.OwnerReference{{UID: ds.UID}}, []metav1.OwnerReference{{}})
}

func (o odd) revision(i int, ds *appsv1.DaemonSet) *appsv1.ControllerRevision {
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("r%d", i), UID: types.UID(fmt.Sprintf("r%d", i)), Labels: o.labels(),
		OwnerReferences: o.owners(ds), DeletionTimestamp: o.deletion(), CreationTimestamp: metav1.NewTime(o.time())}, Revision: int64(o.roll(4, "revision") - 1)}
	if i == 0 && o.roll(2, "taken") == 1 {
		r.Name = ds.Name + "-" + templateHash(&ds.Spec.Template, ds.Status.CollisionCount)
	}
	data, _ := templateData(ds)
	r.Data = runtime.RawExtension{Raw: pick(o.dice, "data", data, nil, []byte("{}"), []byte("no JSON"))}
	return r
}

func (o odd) pod(i int, ds *appsv1.DaemonSet) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: strings.TrimSuffix(fmt.Sprintf("pod%d", i), "pod0"), UID: types.UID(fmt.Sprintf("pod%d", i)), Labels: o.labels(),
		OwnerReferences: o.owners(ds), DeletionTimestamp: o.deletion(), CreationTimestamp: metav1.NewTime(o.time())}}
	if i%2 == 1 && p.Labels != nil && o.roll(2, "updated") == 1 {
		p.Labels[hashLabel] = templateHash(&ds.Spec.Template, ds.Status.CollisionCount)
	}
	p.Spec.NodeName = pick(o.dice, "node", "n1", "", "n2", "n3", "gone")
	p.Spec.Affinity = o.affinity()
	p.Status.Phase = mostly(o.dice, "phase", corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded, "", "Odd")
	if status := pick(o.dice, "ready", corev1.ConditionTrue, corev1.ConditionFalse, "", "nil"); status != "nil" {
		p.Status.Conditions = []corev1.PodCondition{{}, {Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(o.time())}}
	}
	if rarely(o.dice, 4, "waiting") {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{}, {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	}
	return p
}
