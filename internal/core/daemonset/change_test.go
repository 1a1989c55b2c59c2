package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// changes are the words of a story that change the facts.
var changes = map[string]func(*cluster, words){
	"node":        (*cluster).joins,
	"node-change": (*cluster).nodeChanges,
	"node-delete": func(c *cluster, w words) {
		c.nodes = slices.DeleteFunc(c.nodes, func(n *corev1.Node) bool { return slices.Contains(w.list("name"), n.Name) })
	},
	"waits":   func(c *cluster, w words) { c.waits = setAll(c.waits, w.list("node"), w.get("why")) },
	"rejects": func(c *cluster, w words) { c.rejects = setAll(c.rejects, w.list("node"), w.get("why")) },
	"refuse": func(c *cluster, w words) {
		c.quota, c.refused = w.number("quota"), setAll(nil, w.list("node"), cmp.Or(w.get("why"), "refused"))
	},
	"annotate": (*cluster).settingChanges,
	"strategy": func(c *cluster, w words) {
		c.strategy(w.get("type"), w.get("maxUnavailable"), w.get("maxSurge"), w.get("minReady"), w.get("history"))
	},
	"template":   (*cluster).templateChanges,
	"daemonset":  (*cluster).daemonSetChanges,
	"pod":        (*cluster).podChanges,
	"pod-add":    (*cluster).podAppears,
	"pod-delete": (*cluster).podIsDeleted,
	"revision-orphan": func(c *cluster, _ words) {
		for i, r := range c.revisions {
			r = r.DeepCopy()
			r.OwnerReferences = nil
			c.revisions[i] = r
		}
	},
	"revision-foreign": func(c *cluster, _ words) {
		c.revisions = append(c.revisions, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: c.uid(),
			Name: "agent-" + templateHash(&c.ds.Spec.Template, c.ds.Status.CollisionCount)}})
	},
	"revision-copy":   (*cluster).revisionCopied,
	"revision-delete": (*cluster).revisionsAreDeleted,
	"restart":         func(c *cluster, _ words) { c.places = nil },
	"tick":            func(c *cluster, w words) { c.now = c.now.Add(w.duration("for", "1s")) },
	"wake":            (*cluster).wakes,
	"kubelets":        func(c *cluster, _ words) { c.kubelets() },
}

// settingChanges sets an annotation of the DaemonSet or of its namespace, or takes it
// away.
func (c *cluster) settingChanges(w words) {
	if w.has("namespace") {
		c.defaults = map[string]string{w.get("name"): w.get("value")}
		return
	}
	c.ds = c.ds.DeepCopy()
	c.ds.Annotations[w.get("name")] = w.get("value")
	if w.get("value") == "" {
		delete(c.ds.Annotations, w.get("name"))
	}
}

// setAll gives every key the value; an empty one takes the key away.
func setAll(m map[string]string, keys []string, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	for _, k := range keys {
		if m[k] = value; value == "" {
			delete(m, k)
		}
	}
	return m
}

func pairs(s string) map[string]string {
	out := map[string]string{}
	for _, p := range strings.Split(s, "+") {
		if k, v, ok := strings.Cut(p, ":"); ok {
			out[k] = v
		}
	}
	return out
}

func (c *cluster) joins(w words) {
	names := w.list("name")
	for i := range w.number("count") {
		names = append(names, fmt.Sprintf("%s%03d", names[0], i+1))
	}
	if w.has("count") {
		names = names[1:]
	}
	for _, name := range names {
		c.addNode(name, pairs(w.get("labels")))
	}
}

func (c *cluster) nodeChanges(w words) {
	for _, name := range w.list("name") {
		c.changeNode(name, w.get("labels"), w.get("taint"), w.get("ready"))
		if w.has("deleting") {
			i := slices.IndexFunc(c.nodes, func(n *corev1.Node) bool { return n.Name == name })
			c.nodes[i] = c.nodes[i].DeepCopy()
			at := metav1.NewTime(c.now)
			c.nodes[i].DeletionTimestamp = &at
		}
	}
}

func (c *cluster) changeNode(name, labels, taint, ready string) {
	for i, n := range c.nodes {
		if n.Name != name {
			continue
		}
		n = n.DeepCopy()
		if labels != "" {
			n.Labels = pairs(labels)
		}
		if taint != "" {
			n.Spec.Taints = nil
		}
		for _, t := range strings.Split(taint, "+") {
			if key, effect, ok := strings.Cut(t, ":"); ok {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
			}
		}
		if ready != "" {
			n.Status.Conditions[0].Status = corev1.ConditionStatus(ready)
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(c.now)
		}
		c.nodes[i] = n
	}
}

func (c *cluster) strategy(kind, unavailable, surge, minReady, history string) {
	c.ds = c.ds.DeepCopy()
	s := &c.ds.Spec
	c.ds.Generation++
	if kind != "" {
		s.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.DaemonSetUpdateStrategyType(kind)}
	}
	if unavailable != "" || surge != "" {
		u, g := intstr.Parse(unavailable), intstr.Parse(surge)
		s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &u, MaxSurge: &g}
	}
	if minReady != "" {
		fmt.Sscan(minReady, &s.MinReadySeconds)
	}
	if history != "" {
		var n int32
		fmt.Sscan(history, &n)
		s.RevisionHistoryLimit = &n
	}
}

func (c *cluster) templateChanges(w words) {
	c.template(func(t *corev1.PodTemplateSpec) {
		if v := w.get("image"); v != "" {
			t.Spec.Containers[0].Image = v
		}
		if w.has("selector") {
			t.Spec.NodeSelector = pairs(w.get("selector"))
		}
		if w.has("tolerate") {
			t.Spec.Tolerations = tolerations(w.list("tolerate"))
		}
		if w.has("affinity") {
			t.Spec.Affinity = requires(w.list("affinity"))
		}
		if w.has("nodeName") {
			t.Spec.NodeName = w.get("nodeName")
		}
		t.Spec.HostNetwork = t.Spec.HostNetwork || w.has("hostNetwork")
	})
}

// tolerations are written key or key:effect; "all" stands for every key.
func tolerations(list []string) []corev1.Toleration {
	var out []corev1.Toleration
	for _, s := range list {
		key, effect, _ := strings.Cut(s, ":")
		if key == "all" {
			key = ""
		}
		if s != "" && s != "none" {
			out = append(out, corev1.Toleration{Key: key, Effect: corev1.TaintEffect(effect), Operator: corev1.TolerationOpExists})
		}
	}
	return out
}

// requires is an affinity of terms, of which one must match, written key:value or
// key:value,value; the key "name" stands for the node's name.
func requires(terms []string) *corev1.Affinity {
	required := &corev1.NodeSelector{}
	for _, s := range terms {
		key, values, _ := strings.Cut(s, ":")
		r := []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: strings.Split(values, ",")}}
		term := corev1.NodeSelectorTerm{MatchExpressions: r}
		if key == "name" {
			r[0].Key = metav1.ObjectNameField
			term = corev1.NodeSelectorTerm{MatchFields: r}
		}
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
}

func (c *cluster) daemonSetChanges(w words) {
	c.ds = c.ds.DeepCopy()
	if w.has("deleting") {
		at := metav1.NewTime(c.now)
		c.ds.DeletionTimestamp = &at
		if w.get("deleting") == "foreground" {
			c.ds.Finalizers = []string{metav1.FinalizerDeleteDependents}
		}
	}
	if w.get("selector") == "none" {
		c.ds.Spec.Selector = &metav1.LabelSelector{}
	}
	if w.has("again") { // deleted and made anew
		c.ds.UID, c.ds.Generation, c.ds.DeletionTimestamp, c.ds.Status = c.uid(), 1, nil, appsv1.DaemonSetStatus{}
		c.ds.Annotations[appsv1.DeprecatedTemplateGeneration] = "1"
		c.places = nil
	}
}

func (c *cluster) podChanges(w words) {
	for _, p := range c.pods {
		if !w.means(p) {
			continue
		}
		c.change(p.UID, func(p *corev1.Pod) {
			changePod(p, w.get("phase"), w.get("label"), w.get("orphan"))
			c.changeReady(p, w.get("ready"), w.get("waits"), w.get("unscheduled"))
			p.Status.Reason += w.get("why")
			if w.has("sick") {
				p.Annotations = map[string]string{sick: w.get("sick")}
			}
			if w.has("finalizer") {
				p.Finalizers = []string{"example.com/wait"}
			}
		})
	}
}

// means says whether a command is about the pod: by node, by name, or all.
func (w words) means(p *corev1.Pod) bool {
	return w.has("all") || slices.Contains(w.list("node"), fit.TargetNode(p)) || slices.Contains(w.list("name"), p.Name)
}

func changePod(p *corev1.Pod, phase, label, orphan string) {
	if phase != "" {
		p.Status.Phase, p.Status.Conditions = corev1.PodPhase(phase), nil
	}
	if label != "" {
		p.Labels = map[string]string{"app": label}
	}
	if orphan != "" {
		p.OwnerReferences = nil
	}
}

func (c *cluster) changeReady(p *corev1.Pod, ready, waits, unscheduled string) {
	at := metav1.NewTime(c.now)
	if ready != "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionStatus(ready), LastTransitionTime: at}}
	}
	if waits != "" {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waits}}}}
	}
	if unscheduled != "" {
		p.Spec.NodeName = ""
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: unscheduled, LastTransitionTime: at}}
	}
}

// podAppears adds pods of the current template that somebody else made; "count"
// of them are numbered.
func (c *cluster) podAppears(w words) {
	n := max(1, w.number("count"))
	for i := range n {
		name := w.get("name")
		if w.has("count") {
			name += fmt.Sprint(i + 1)
		}
		p := c.addPod(name, w.get("node"))
		switch {
		case w.has("orphan"):
			p.OwnerReferences = nil
		case w.has("foreign"):
			p.OwnerReferences[0].UID, p.OwnerReferences[0].Name = "other", "other"
		}
		if w.has("bound") {
			p.Spec.NodeName, p.Status.Phase = w.get("node"), corev1.PodRunning
		}
		if w.has("old") {
			p.Labels[hashLabel], p.Labels[generationLabel] = "old", "0"
		}
		if v := w.get("phase"); v != "" {
			p.Status.Phase = corev1.PodPhase(v)
		}
		c.changeReady(p, w.get("ready"), "", "")
	}
}

func (c *cluster) addPod(name, node string) *corev1.Pod {
	d := &decision{in: c.input(), hash: templateHash(&c.ds.Spec.Template, c.ds.Status.CollisionCount)}
	p := d.newPod(&spot{name: node, node: &corev1.Node{}})
	p.Name, p.UID, p.CreationTimestamp = name, c.uid(), metav1.NewTime(c.now)
	c.pods = append(c.pods, p)
	return p
}

// podIsDeleted marks pods for deletion, or takes them away at once.
func (c *cluster) podIsDeleted(w words) {
	for _, p := range slices.Clone(c.pods) {
		if w.means(p) {
			c.change(p.UID, func(p *corev1.Pod) { at := metav1.NewTime(c.now); p.DeletionTimestamp = &at })
		}
	}
	if w.has("gone") {
		c.pods = slices.DeleteFunc(c.pods, w.means)
	}
}

// wakes moves the clock to when the last plan wants to look again.
func (c *cluster) wakes(w words) {
	if c.wake.IsZero() {
		w.t.Fatal("the last plan does not wake")
	}
	c.now = c.wake
}

// revisionsAreDeleted takes away the revision of a number, or all.
func (c *cluster) revisionsAreDeleted(w words) {
	c.revisions = slices.DeleteFunc(c.revisions, func(r *appsv1.ControllerRevision) bool {
		return !w.has("number") || r.Revision == int64(w.number("number"))
	})
}

// revisionCopied adds a second revision of the last one's template, with a hash
// label of its own.
func (c *cluster) revisionCopied(w words) {
	r := c.revisions[len(c.revisions)-1].DeepCopy()
	r.Name, r.UID = w.get("name"), c.uid()
	r.Revision++
	delete(r.Labels, hashLabel)
	c.revisions = append(c.revisions, r)
}
