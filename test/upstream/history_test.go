package upstream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// event is one thing that happens to both worlds alike.
type event struct {
	text string
	do   []func(*world) // one after the other, when what came before has been seen
}

func happen(do func(*world), format string, args ...any) event {
	return event{text: fmt.Sprintf(format, args...), do: []func(*world){do}}
}

var appLabels = map[string]string{"app": "agent"}

func newDaemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"team": "a"}},
		Spec: appsv1.DaemonSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: appLabels},
			RevisionHistoryLimit: ptr.To[int32](10),
			UpdateStrategy:       rolling(intstr.FromInt32(1), intstr.FromInt32(0)),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: appLabels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "v1"}}}},
		},
	}
}

func rolling(unavailable, surge intstr.IntOrString) appsv1.DaemonSetUpdateStrategy {
	return appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge}}
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"host": name}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

// must is for writes of the test itself.
func must(_ object, err error) {
	if err != nil {
		panic(err)
	}
}

func (w *world) addNode(name string) { must(w.api.create(nodes, newNode(name))) }

func (w *world) changeNode(name string, f func(*corev1.Node)) {
	w.api.change(nodes, newNode(name), func(o object) { f(o.(*corev1.Node)) })
}

// changeDaemonSet writes as a user does.
func (w *world) changeDaemonSet(f func(*appsv1.DaemonSet)) {
	if ds := w.daemonSet(); ds != nil {
		f(ds)
		must(w.api.update(daemonSets, ds, false))
	}
}

func (w *world) changeTemplate(f func(*corev1.PodTemplateSpec)) {
	w.changeDaemonSet(func(ds *appsv1.DaemonSet) { f(&ds.Spec.Template) })
}

func (w *world) setImage(image string) {
	w.changeTemplate(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Image = image })
}

func (w *world) changePod(p *corev1.Pod, f func(*corev1.Pod)) {
	w.api.change(pods, p, func(o object) { f(o.(*corev1.Pod)) })
}

// onPod does something to the i-th pod; the order is the same in equal worlds.
func onPod(i int, f func(*world, *corev1.Pod)) func(*world) {
	return func(w *world) {
		all := w.pods()
		slices.SortFunc(all, func(a, b *corev1.Pod) int {
			return cmp.Or(cmp.Compare(stateOf(a).String(), stateOf(b).String()), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
		})
		if len(all) > 0 {
			f(w, all[i%len(all)])
		}
	}
}

// events are the kinds of events, with their weights.
var events = []struct {
	weight int
	draw   func(*rapid.T) event
}{
	{6, drawImage}, {2, drawNode}, {3, drawLabel}, {4, drawTaint}, {3, drawPlacement}, {4, drawStrategy}, {1, drawNumbers},
	{4, drawPodTrouble}, {2, drawOrphanPod}, {1, drawDuplicateRevision}, {1, drawRevisionTrouble}, {2, drawUndo}, {1, drawCollision}, {1, drawRecreation},
}

func drawEvent(t *rapid.T) event {
	total := 0
	for _, e := range events {
		total += e.weight
	}
	n := rapid.IntRange(0, total-1).Draw(t, "event")
	for _, e := range events {
		if n -= e.weight; n < 0 {
			return e.draw(t)
		}
	}
	panic("no event")
}

func anyNode(t *rapid.T) string { return fmt.Sprintf("n%d", rapid.IntRange(1, 6).Draw(t, "node")) }

func drawImage(t *rapid.T) event {
	image := rapid.SampledFrom([]string{"v1", "v2", "v3", "bad1", "bad2"}).Draw(t, "image")
	return happen(func(w *world) { w.setImage(image) }, "image %s", image)
}

func drawNode(t *rapid.T) event {
	node := anyNode(t)
	return happen(func(w *world) {
		if o, err := w.api.get(nodes, "", node); err == nil {
			w.api.remove(nodes, o)
		} else {
			w.addNode(node)
		}
	}, "node %s comes or goes", node)
}

func drawLabel(t *rapid.T) event {
	node, zone := anyNode(t), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone")
	return happen(func(w *world) {
		w.changeNode(node, func(n *corev1.Node) { n.Labels["zone"] = zone })
	}, "node %s zone=%s", node, zone)
}

func drawTaint(t *rapid.T) event {
	node, effect := anyNode(t), rapid.SampledFrom([]corev1.TaintEffect{"", "", "NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"}).Draw(t, "effect")
	return happen(func(w *world) { w.taint(node, effect) }, "node %s taint %s", node, effect)
}

func (w *world) taint(node string, effect corev1.TaintEffect) {
	w.changeNode(node, func(n *corev1.Node) {
		n.Spec.Taints = nil
		if effect != "" {
			n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: effect}}
		}
	})
}

// drawPlacement changes where the template wants to be, or something else in it.
func drawPlacement(t *rapid.T) event {
	kind := rapid.SampledFrom([]string{"everywhere", "zone a", "not zone a", "zone b or n1", "tolerate x", "tolerate all", "host network", "restart"}).Draw(t, "placement")
	return happen(func(w *world) { w.changeTemplate(func(t *corev1.PodTemplateSpec) { place(t, kind) }) }, "template: %s", kind)
}

func place(t *corev1.PodTemplateSpec, kind string) {
	one := func(op corev1.NodeSelectorOperator) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: op, Values: []string{"a"}}}}
	}
	affinity := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	switch kind {
	case "everywhere":
		t.Spec.NodeSelector, t.Spec.Affinity, t.Spec.Tolerations, t.Spec.HostNetwork = nil, nil, nil, false
	case "zone a":
		t.Spec.NodeSelector = map[string]string{"zone": "a"}
	case "not zone a":
		t.Spec.Affinity = affinity(one(corev1.NodeSelectorOpNotIn))
	case "zone b or n1":
		b := one(corev1.NodeSelectorOpIn)
		b.MatchExpressions[0].Values = []string{"b"}
		t.Spec.Affinity = affinity(b, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}})
	case "tolerate x":
		t.Spec.Tolerations = []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	case "tolerate all":
		t.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	case "host network":
		t.Spec.HostNetwork = true
	case "restart":
		t.Annotations = map[string]string{"restarted": t.Annotations["restarted"] + "x"}
	}
}

func drawStrategy(t *rapid.T) event {
	kind := rapid.SampledFrom([]string{"unavailable 1", "unavailable 2", "unavailable 50%", "unavailable 100%", "surge 1", "surge 2", "surge 40%", "OnDelete"}).Draw(t, "strategy")
	return happen(func(w *world) {
		w.changeDaemonSet(func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy = strategy(kind) })
	}, "strategy %s", kind)
}

func strategy(kind string) appsv1.DaemonSetUpdateStrategy {
	what, number, _ := strings.Cut(kind, " ")
	switch what {
	case "unavailable":
		return rolling(intstr.Parse(number), intstr.FromInt32(0))
	case "surge":
		return rolling(intstr.FromInt32(0), intstr.Parse(number))
	default:
		return appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	}
}

func drawNumbers(t *rapid.T) event {
	limit, ready := rapid.SampledFrom([]int32{0, 1, 2, 10}).Draw(t, "limit"), rapid.SampledFrom([]int32{0, 1, 12}).Draw(t, "ready")
	return happen(func(w *world) {
		w.changeDaemonSet(func(ds *appsv1.DaemonSet) { ds.Spec.RevisionHistoryLimit, ds.Spec.MinReadySeconds = &limit, ready })
	}, "revisionHistoryLimit %d, minReadySeconds %d", limit, ready)
}

func drawPodTrouble(t *rapid.T) event {
	i, what := rapid.IntRange(0, 11).Draw(t, "pod"), rapid.SampledFrom([]string{"fails", "succeeds", "is deleted", "leaves the selector", "comes back to the selector", "loses its owner"}).Draw(t, "what")
	return happen(onPod(i, func(w *world, p *corev1.Pod) {
		switch what {
		case "is deleted":
			if err := w.api.delete(pods, p.Namespace, p.Name, nil); err != nil {
				panic(err)
			}
		default:
			w.changePod(p, func(p *corev1.Pod) { trouble(p, what) })
		}
	}), "pod %d %s", i, what)
}

func trouble(p *corev1.Pod, what string) {
	switch what {
	case "fails":
		p.Status.Phase = corev1.PodFailed
		setReady(p, false)
	case "succeeds":
		p.Status.Phase = corev1.PodSucceeded
		setReady(p, false)
	case "leaves the selector":
		p.Labels["app"] = "other"
	case "comes back to the selector":
		p.Labels["app"] = "agent"
	case "loses its owner":
		p.OwnerReferences = nil
	}
}

// drawOrphanPod is a pod that matches and that nobody owns, of the newest
// revision or of none.
func drawOrphanPod(t *rapid.T) event {
	node, current := anyNode(t), rapid.Bool().Draw(t, "current")
	return happen(func(w *world) { w.orphanPod(node, current) }, "an orphan on %s, of the newest revision: %v", node, current)
}

func (w *world) orphanPod(node string, current bool) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "orphan-", Labels: maps.Clone(appLabels)},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "agent", Image: "v1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	setReady(p, true)
	if r := w.newest(); current && r != nil {
		p.Labels[appsv1.ControllerRevisionHashLabelKey] = r.Labels[appsv1.ControllerRevisionHashLabelKey]
	}
	must(w.api.create(pods, p))
}

func (w *world) byNumber() []*appsv1.ControllerRevision {
	all := w.revisions()
	slices.SortFunc(all, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (w *world) newest() *appsv1.ControllerRevision {
	all := w.byNumber()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func drawDuplicateRevision(t *rapid.T) event {
	n, owned := rapid.IntRange(0, 99).Draw(t, "number"), rapid.Bool().Draw(t, "owned")
	return happen(func(w *world) { w.duplicate(n, owned) }, "duplicate %d of the newest revision, owned: %v", n, owned)
}

func (w *world) duplicate(n int, owned bool) {
	r := w.newest()
	if r == nil {
		return
	}
	next := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("double-%d", n), Labels: maps.Clone(r.Labels)},
		Data: r.Data, Revision: r.Revision + int64(1)}
	next.Labels[appsv1.ControllerRevisionHashLabelKey] = fmt.Sprintf("hash-%d", n)
	if owned {
		next.OwnerReferences = r.OwnerReferences
	}
	w.api.create(revisions, next) // it may be there
}

func drawRevisionTrouble(t *rapid.T) event {
	i, what := rapid.IntRange(0, 9).Draw(t, "revision"), rapid.SampledFrom([]string{"loses its hash", "loses its owner", "leaves the selector", "is deleted"}).Draw(t, "what")
	return happen(func(w *world) {
		all := w.byNumber()
		if len(all) == 0 {
			return
		}
		r := all[i%len(all)]
		if what == "is deleted" {
			w.api.remove(revisions, r)
			return
		}
		w.api.change(revisions, r, func(o object) {
			switch r := o.(*appsv1.ControllerRevision); what {
			case "loses its hash":
				if metav1.GetControllerOf(r) == nil {
					return // nobody would label it again
				}
				delete(r.Labels, appsv1.ControllerRevisionHashLabelKey)
			case "loses its owner":
				r.OwnerReferences = nil
			case "leaves the selector":
				r.Labels = maps.Clone(r.Labels)
				maps.DeleteFunc(r.Labels, func(k, _ string) bool { return k == "app" })
			}
		})
	}, "revision %d %s", i, what)
}

func drawUndo(t *rapid.T) event {
	i := rapid.IntRange(0, 9).Draw(t, "revision")
	return happen(func(w *world) { w.undo(i) }, "undo to revision %d", i)
}

// undo writes the template that one of the DaemonSet's revisions holds, as kubectl
// does; the API server refuses one that the selector does not match.
func (w *world) undo(i int) {
	owned := slices.DeleteFunc(w.byNumber(), func(r *appsv1.ControllerRevision) bool { return metav1.GetControllerOf(r) == nil })
	if len(owned) == 0 {
		return
	}
	var data struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if err := json.Unmarshal(owned[i%len(owned)].Data.Raw, &data); err != nil {
		panic(err)
	}
	if data.Spec.Template.Labels["app"] == appLabels["app"] {
		w.changeTemplate(func(t *corev1.PodTemplateSpec) { *t = data.Spec.Template })
	}
}
