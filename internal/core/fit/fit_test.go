package fit

import (
	"os"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

// TestSystemTaints is the truth table of the taints that the system itself puts on
// nodes, for a template without tolerations.
func TestSystemTaints(t *testing.T) {
	for _, c := range []struct {
		key         string
		effect      corev1.TaintEffect
		hostNetwork bool
		run, stay   bool
	}{
		{corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule, false, false, true},
		{corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute, false, true, true},
		{corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, false, false, true},
		{corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, false, true, true},
		{corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule, false, true, true},
		{corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoExecute, false, false, false},
		{corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule, false, true, true},
		{corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule, false, true, true},
		{corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule, false, true, true},
		{corev1.TaintNodeUnschedulable, corev1.TaintEffectNoExecute, false, false, false},
		{corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule, false, false, true},
		{corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule, true, true, true},
		{corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoExecute, false, false, false},
		{corev1.TaintNodeOutOfService, corev1.TaintEffectNoSchedule, false, false, true},
		{corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute, false, false, false},
		{"mine", corev1.TaintEffectPreferNoSchedule, false, true, true},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint(c.key, c.effect)}}}
		v := Eligible(&corev1.PodTemplateSpec{Spec: corev1.PodSpec{HostNetwork: c.hostNetwork}}, n)
		if v.ShouldRun != c.run || v.ShouldContinue != c.stay {
			t.Errorf("%s:%s hostNetwork=%t: run=%t continue=%t", c.key, c.effect, c.hostNetwork, v.ShouldRun, v.ShouldContinue)
		}
		if v.ShouldRun == (len(v.Reasons) > 0) {
			t.Errorf("%s:%s: run=%t with reasons %v", c.key, c.effect, v.ShouldRun, v.Reasons)
		}
	}
}

func affinity(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}

func term(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

func field(name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
}

func TestAffinity(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a", "cores": "8"}}}
	for _, c := range []struct {
		name   string
		terms  []corev1.NodeSelectorTerm
		run    bool
		remedy string
	}{
		{"in", []corev1.NodeSelectorTerm{term("zone", corev1.NodeSelectorOpIn, "a")}, true, ""},
		{"terms are alternatives", []corev1.NodeSelectorTerm{term("zone", corev1.NodeSelectorOpIn, "b"), field("n")}, true, ""},
		{"absent key matches NotIn", []corev1.NodeSelectorTerm{term("x", corev1.NodeSelectorOpNotIn, "b")}, true, ""},
		{"greater", []corev1.NodeSelectorTerm{term("cores", corev1.NodeSelectorOpGt, "4")}, true, ""},
		{"an empty term matches nothing", []corev1.NodeSelectorTerm{{}}, false, ""},
		{"a term that cannot be parsed does not match", []corev1.NodeSelectorTerm{term("cores", corev1.NodeSelectorOpGt, "many")}, false, ""},
		{"wrong value", []corev1.NodeSelectorTerm{term("zone", corev1.NodeSelectorOpIn, "b", "c")}, false, "kubectl label node n zone=b --overwrite"},
		{"missing label", []corev1.NodeSelectorTerm{term("gpu", corev1.NodeSelectorOpExists)}, false, "kubectl label node n gpu=true"},
	} {
		v := Eligible(&corev1.PodTemplateSpec{Spec: corev1.PodSpec{Affinity: affinity(c.terms...)}}, n)
		if v.ShouldRun != c.run || v.ShouldContinue != c.run {
			t.Errorf("%s: %+v", c.name, v)
		} else if !c.run && v.Reasons[0].Remedy != c.remedy {
			t.Errorf("%s: remedy %q, want %q", c.name, v.Reasons[0].Remedy, c.remedy)
		}
	}
}

func TestEveryObstacleIsNamed(t *testing.T) {
	now := metav1.Now()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}}}
	v := Eligible(&corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "m", NodeSelector: map[string]string{"os": "linux"},
		Affinity: affinity(term("z", corev1.NodeSelectorOpExists))}}, n)
	var got []Code
	for _, r := range v.Reasons {
		got = append(got, r.Code)
	}
	if want := []Code{NodeNameMismatch, NodeSelectorMismatch, NodeAffinityMismatch, UntoleratedTaint}; !slices.Equal(got, want) || v.ShouldContinue {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := v.Reasons[3].Remedy, "- key: k\n  operator: Equal\n  value: \"v\"\n  effect: NoSchedule"; got != want {
		t.Errorf("remedy %q", got)
	}
	n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", DeletionTimestamp: &now}}
	if v := Eligible(&corev1.PodTemplateSpec{}, n); v.ShouldRun || !v.ShouldContinue || v.Reasons[0].Code != NodeBeingDeleted {
		t.Errorf("a node being deleted: %+v", v)
	}
}

func TestDaemonTolerations(t *testing.T) {
	seconds := int64(30)
	spec := &corev1.PodSpec{HostNetwork: true, Tolerations: []corev1.Toleration{
		{Key: "mine", Operator: corev1.TolerationOpExists},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
	}}
	var got []string
	for _, o := range DaemonTolerations(spec) {
		got = append(got, o.Key+":"+string(o.Effect))
		if o.TolerationSeconds != nil && o.Operator == corev1.TolerationOpExists {
			t.Errorf("%s keeps its seconds", o.Key)
		}
	}
	p := "node.kubernetes.io/"
	want := []string{"mine:", p + "not-ready:NoExecute", p + "unreachable:NoExecute", p + "unreachable:NoExecute", p + "disk-pressure:NoSchedule",
		p + "memory-pressure:NoSchedule", p + "pid-pressure:NoSchedule", p + "unschedulable:NoSchedule", p + "network-unavailable:NoSchedule"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if spec.Tolerations[1].TolerationSeconds == nil {
		t.Error("the input was changed")
	}
}

func TestPinToNodeAndTargetNode(t *testing.T) {
	spec := corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}, Affinity: affinity(term("zone", corev1.NodeSelectorOpExists))}
	spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 1}}
	PinToNode(&spec, "n1")
	na := spec.Affinity.NodeAffinity
	if len(na.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != 1 ||
		len(na.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions) != 0 ||
		len(na.PreferredDuringSchedulingIgnoredDuringExecution) != 1 || spec.NodeSelector["a"] != "b" {
		t.Errorf("pinned %+v", spec)
	}
	pod := &corev1.Pod{Spec: spec}
	if got := TargetNode(pod); got != "n1" {
		t.Errorf("target %q", got)
	}
	pod.Spec.NodeName = "n2"
	if got := TargetNode(pod); got != "n2" {
		t.Errorf("target of a bound pod %q", got)
	}
	if got := TargetNode(&corev1.Pod{}); got != "" {
		t.Errorf("target of a free pod %q", got)
	}
}

// TestCodes holds the table against the constants.
func TestCodes(t *testing.T) {
	src, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\t(\w+) +Code = "(\w+)"$`).FindAllStringSubmatch(string(src), -1)
	if len(found) != len(Codes) {
		t.Errorf("%d constants, %d sentences", len(found), len(Codes))
	}
	for _, f := range found {
		if f[1] != f[2] || Codes[Code(f[2])] == "" {
			t.Errorf("%s = %q has sentence %q", f[1], f[2], Codes[Code(f[2])])
		}
	}
}
