package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Eligible says whether a pod of the template may be on the node. Every obstacle
// is named, not only the first.
func Eligible(template *corev1.PodTemplateSpec, node *corev1.Node) Verdict {
	spec := &template.Spec
	v := Verdict{ShouldRun: true, ShouldContinue: true}
	forbid := func(r Reason) {
		v.ShouldRun, v.ShouldContinue = false, false
		v.Reasons = append(v.Reasons, r)
	}
	if spec.NodeName != "" && spec.NodeName != node.Name {
		forbid(Reason{Code: NodeNameMismatch, Message: fmt.Sprintf("the template names the node %s", spec.NodeName),
			Object: "node/" + node.Name, Asked: spec.NodeName, Remedy: "remove spec.template.spec.nodeName"})
	}
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		want := spec.NodeSelector[key]
		if have, ok := node.Labels[key]; !ok || have != want {
			forbid(Reason{Code: NodeSelectorMismatch, Message: fmt.Sprintf("nodeSelector asks %s=%s, the node has %s", key, want, labelText(node, key)),
				Object: "node/" + node.Name, Asked: key + "=" + want, Remedy: labelCommand(node, key, want)})
		}
	}
	if !affinityMatches(spec, node) {
		forbid(Reason{Code: NodeAffinityMismatch, Message: "no term of the required node affinity matches: " + affinityText(spec, node),
			Object: "node/" + node.Name, Remedy: affinityRemedy(spec, node)})
	}
	checkTaints(spec, node, &v)
	if node.DeletionTimestamp != nil && v.ShouldRun {
		v.ShouldRun = false
		v.Reasons = append(v.Reasons, Reason{Code: NodeBeingDeleted, Message: "the node is being deleted", Object: "node/" + node.Name})
	}
	return v
}

func checkTaints(spec *corev1.PodSpec, node *corev1.Node, v *Verdict) {
	tolerations := DaemonTolerations(spec)
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || tolerated(t, tolerations) {
			continue
		}
		v.ShouldRun = false
		if t.Effect == corev1.TaintEffectNoExecute {
			v.ShouldContinue = false
		}
		v.Reasons = append(v.Reasons, Reason{Code: UntoleratedTaint, Message: "taint " + t.ToString() + " is not tolerated",
			Object: "node/" + node.Name, Remedy: tolerationYAML(t)})
	}
}

func tolerated(t *corev1.Taint, by []corev1.Toleration) bool {
	return corev1helpers.TolerationsTolerateTaint(klog.Logger{}, by, t, false)
}

func tolerationYAML(t *corev1.Taint) string {
	if t.Value == "" {
		return fmt.Sprintf("- key: %s\n  operator: Exists\n  effect: %s", t.Key, t.Effect)
	}
	return fmt.Sprintf("- key: %s\n  operator: Equal\n  value: %q\n  effect: %s", t.Key, t.Value, t.Effect)
}

func labelCommand(node *corev1.Node, key, value string) string {
	if have, ok := node.Labels[key]; ok && have != value {
		return fmt.Sprintf("kubectl label node %s %s=%s --overwrite", node.Name, key, value)
	}
	return fmt.Sprintf("kubectl label node %s %s=%s", node.Name, key, value)
}

func labelText(node *corev1.Node, key string) string {
	if v, ok := node.Labels[key]; ok {
		return key + "=" + v
	}
	return "no label " + key
}

func requiredAffinity(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// affinityMatches treats a term that cannot be parsed as one that does not match,
// as upstream does.
func affinityMatches(spec *corev1.PodSpec, node *corev1.Node) bool {
	required := requiredAffinity(spec)
	if required == nil {
		return true
	}
	ok, _ := nodeaffinity.NewLazyErrorNodeSelector(required).Match(node)
	return ok
}

// affinityRemedy names the one label that would make a term match, if there is one.
func affinityRemedy(spec *corev1.PodSpec, node *corev1.Node) string {
	for _, term := range requiredAffinity(spec).NodeSelectorTerms {
		for _, r := range term.MatchExpressions {
			key, value := r.Key, "true"
			if r.Operator == corev1.NodeSelectorOpIn && len(r.Values) > 0 {
				value = r.Values[0]
			} else if r.Operator != corev1.NodeSelectorOpExists {
				continue
			}
			labelled := node.DeepCopy()
			if labelled.Labels == nil {
				labelled.Labels = map[string]string{}
			}
			labelled.Labels[key] = value
			if affinityMatches(spec, labelled) {
				return labelCommand(node, key, value)
			}
		}
	}
	return ""
}

func affinityText(spec *corev1.PodSpec, node *corev1.Node) string {
	var terms []string
	for _, term := range requiredAffinity(spec).NodeSelectorTerms {
		var parts []string
		for _, r := range term.MatchExpressions {
			asked := strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ",")))
			parts = append(parts, fmt.Sprintf("%s (the node has %s)", asked, labelText(node, r.Key)))
		}
		for _, r := range term.MatchFields {
			parts = append(parts, fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ",")))
		}
		if len(parts) == 0 {
			parts = []string{"an empty term, which matches nothing"}
		}
		terms = append(terms, strings.Join(parts, " and "))
	}
	return strings.Join(terms, "; or ")
}
