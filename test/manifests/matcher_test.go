package manifests

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// expected counts the nodes that a pod of this spec, made by a DaemonSet, may be
// put on.
func expected(spec *corev1.PodSpec, nodes []corev1.Node) int {
	n := 0
	for i := range nodes {
		if wanted(spec, &nodes[i]) {
			n++
		}
	}
	return n
}

func wanted(spec *corev1.PodSpec, node *corev1.Node) bool {
	if spec.NodeName != "" && spec.NodeName != node.Name {
		return false
	}
	for k, v := range spec.NodeSelector {
		if have, ok := node.Labels[k]; !ok || have != v {
			return false
		}
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return termHolds(t, node) }) {
			return false
		}
	}
	for _, t := range node.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(spec, t) {
			return false
		}
	}
	return true
}

func termHolds(t corev1.NodeSelectorTerm, node *corev1.Node) bool {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return false
	}
	for _, r := range t.MatchExpressions {
		v, ok := node.Labels[r.Key]
		if !holds(r, v, ok) {
			return false
		}
	}
	for _, r := range t.MatchFields {
		if r.Key != "metadata.name" || !holds(r, node.Name, true) {
			return false
		}
	}
	return true
}

func holds(r corev1.NodeSelectorRequirement, v string, there bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return there && slices.Contains(r.Values, v)
	case corev1.NodeSelectorOpNotIn:
		return !there || !slices.Contains(r.Values, v)
	case corev1.NodeSelectorOpExists:
		return there
	case corev1.NodeSelectorOpDoesNotExist:
		return !there
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if !there || len(r.Values) != 1 {
			return false
		}
		have, err1 := strconv.ParseInt(v, 10, 64)
		limit, err2 := strconv.ParseInt(r.Values[0], 10, 64)
		if err1 != nil || err2 != nil {
			return false
		}
		if r.Operator == corev1.NodeSelectorOpGt {
			return have > limit
		}
		return have < limit
	}
	return false
}

// tolerated also knows the tolerations that every DaemonSet's pods are given.
func tolerated(spec *corev1.PodSpec, t corev1.Taint) bool {
	switch t.Key + ":" + string(t.Effect) {
	case "node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoExecute",
		"node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/memory-pressure:NoSchedule",
		"node.kubernetes.io/pid-pressure:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule":
		return true
	case "node.kubernetes.io/network-unavailable:NoSchedule":
		if spec.HostNetwork {
			return true
		}
	}
	for _, tol := range spec.Tolerations {
		keyFits := tol.Key == t.Key || (tol.Key == "" && tol.Operator == corev1.TolerationOpExists)
		effectFits := tol.Effect == "" || tol.Effect == t.Effect
		valueFits := tol.Operator == corev1.TolerationOpExists || tol.Value == t.Value
		if keyFits && effectFits && valueFits {
			return true
		}
	}
	return false
}

func TestMatcher(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker", Labels: map[string]string{"os": "linux", "tier": "5", "word": "five"}},
	}
	tainted := func(taints ...corev1.Taint) *corev1.Node {
		n := node.DeepCopy()
		n.Spec.Taints = taints
		return n
	}
	affinity := func(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}}
	}
	expr := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	field := func(op corev1.NodeSelectorOperator, name string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: op, Values: []string{name}}}}
	}
	tolerating := func(tol corev1.Toleration) corev1.PodSpec {
		return corev1.PodSpec{Tolerations: []corev1.Toleration{tol}}
	}
	custom := taint("spot", "true", corev1.TaintEffectNoSchedule)
	both := expr("os", corev1.NodeSelectorOpIn, "linux")
	both.MatchExpressions = append(both.MatchExpressions, expr("tier", corev1.NodeSelectorOpGt, "5").MatchExpressions...)

	for _, tt := range []struct {
		name string
		spec corev1.PodSpec
		node *corev1.Node
		want bool
	}{
		{"nothing asked", corev1.PodSpec{}, node, true},
		{"node named", corev1.PodSpec{NodeName: "worker"}, node, true},
		{"other node named", corev1.PodSpec{NodeName: "other"}, node, false},
		{"selector fits", corev1.PodSpec{NodeSelector: map[string]string{"os": "linux"}}, node, true},
		{"selector differs", corev1.PodSpec{NodeSelector: map[string]string{"os": "windows"}}, node, false},
		{"selector asks an empty value of a missing label", corev1.PodSpec{NodeSelector: map[string]string{"gone": ""}}, node, false},
		{"In", affinity(expr("os", corev1.NodeSelectorOpIn, "linux", "plan9")), node, true},
		{"In, missing", affinity(expr("gone", corev1.NodeSelectorOpIn, "x")), node, false},
		{"NotIn", affinity(expr("os", corev1.NodeSelectorOpNotIn, "linux")), node, false},
		{"NotIn, missing", affinity(expr("gone", corev1.NodeSelectorOpNotIn, "x")), node, true},
		{"Exists", affinity(expr("os", corev1.NodeSelectorOpExists)), node, true},
		{"DoesNotExist", affinity(expr("os", corev1.NodeSelectorOpDoesNotExist)), node, false},
		{"Gt", affinity(expr("tier", corev1.NodeSelectorOpGt, "4")), node, true},
		{"Gt, equal", affinity(expr("tier", corev1.NodeSelectorOpGt, "5")), node, false},
		{"Lt", affinity(expr("tier", corev1.NodeSelectorOpLt, "6")), node, true},
		{"Lt, a word", affinity(expr("word", corev1.NodeSelectorOpLt, "6")), node, false},
		{"Lt, missing", affinity(expr("gone", corev1.NodeSelectorOpLt, "6")), node, false},
		{"terms are alternatives", affinity(expr("os", corev1.NodeSelectorOpIn, "windows"), expr("tier", corev1.NodeSelectorOpExists)), node, true},
		{"expressions all hold", affinity(both), node, false},
		{"an empty term holds nowhere", affinity(corev1.NodeSelectorTerm{}), node, false},
		{"field", affinity(field(corev1.NodeSelectorOpIn, "worker")), node, true},
		{"field NotIn", affinity(field(corev1.NodeSelectorOpNotIn, "worker")), node, false},
		{"taint", corev1.PodSpec{}, tainted(custom), false},
		{"prefer is no taint", corev1.PodSpec{}, tainted(taint("spot", "", corev1.TaintEffectPreferNoSchedule)), true},
		{"tolerated by value", tolerating(corev1.Toleration{Key: "spot", Value: "true"}), tainted(custom), true},
		{"other value", tolerating(corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpEqual, Value: "no"}), tainted(custom), false},
		{"tolerated by key", tolerating(corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists}), tainted(custom), true},
		{"tolerated at large", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), tainted(custom), true},
		{"other effect", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}), tainted(custom), false},
		{"one of two taints", tolerating(corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists}),
			tainted(custom, taint("edge", "", corev1.TaintEffectNoExecute)), false},
		{"cordoned", corev1.PodSpec{}, tainted(taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)), true},
		{"unreachable", corev1.PodSpec{}, tainted(taint(corev1.TaintNodeUnreachable, "", corev1.TaintEffectNoExecute)), true},
		{"not ready keeps new pods away", corev1.PodSpec{}, tainted(taint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoSchedule)), false},
		{"no network", corev1.PodSpec{}, tainted(taint(corev1.TaintNodeNetworkUnavailable, "", corev1.TaintEffectNoSchedule)), false},
		{"no network, host network", corev1.PodSpec{HostNetwork: true}, tainted(taint(corev1.TaintNodeNetworkUnavailable, "", corev1.TaintEffectNoSchedule)), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := wanted(&tt.spec, tt.node); got != tt.want {
				t.Errorf("wanted = %v, want %v", got, tt.want)
			}
		})
	}
}
