package daemonset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// epilogue is what comes after a history that was healed: updates that must get
// through, or stop, although something stays wrong.
func (w *world) epilogue() {
	switch w.dice.roll(6, "epilogue") {
	case 1:
		w.pastDeadNodes()
	case 2:
		w.pastFlaps()
	case 3:
		w.deadlyRevision()
	}
}

// pastDeadNodes: nodes that died before an update hold neither it nor its undo.
func (w *world) pastDeadNodes() {
	dead := w.dice.roll(len(w.nodes), "dead")
	ready := pick(w.dice, "how", "Unknown", "False")
	for _, n := range w.nodes[:dead] {
		w.changeNode(n.Name, "", "", ready)
		for _, p := range w.pods {
			if target(p) == n.Name && rarely(w.dice, 2, "noticed") {
				w.change(p.UID, func(p *corev1.Pod) { w.changeReady(p, "False", "", "") })
			}
		}
	}
	w.now = w.now.Add(time.Minute)
	for _, image := range []string{"v10", "v9"} {
		w.image(image)
		w.record()
		w.rest()
		w.demand(w.nodes[dead:])
	}
}

// pastFlaps: a pod that is never ready for long holds no update.
func (w *world) pastFlaps() {
	w.ds = w.ds.DeepCopy()
	w.ds.Spec.MinReadySeconds = 20
	w.image("v10")
	flaps := target(w.pods[w.dice.roll(len(w.pods), "flaps")])
	w.restWhile(func() {
		w.now = w.now.Add(5 * time.Second)
		for _, p := range w.pods {
			if target(p) == flaps && p.Spec.Containers[0].Image == "v9" {
				w.change(p.UID, func(p *corev1.Pod) { w.changeReady(p, "False", "", "") })
			}
		}
	})
	w.demand(w.nodes)
}

// deadlyRevision: one that takes down what stands beside it gets to no more nodes
// than the strategy lets it, and the next one is free to go everywhere.
func (w *world) deadlyRevision() {
	w.image("bad9")
	w.restWhile(func() {
		for _, p := range w.pods {
			i := slices.IndexFunc(w.pods, func(o *corev1.Pod) bool { return target(o) == target(p) && o.Spec.Containers[0].Image == "bad9" })
			if i >= 0 && w.pods[i].Status.Phase == corev1.PodRunning {
				w.change(p.UID, func(p *corev1.Pod) { p.Annotations = map[string]string{sick: "yes"} })
			}
		}
	})
	w.rest()
	u := w.ds.Spec.UpdateStrategy.RollingUpdate
	allowed := u.MaxUnavailable.IntValue()
	if u.MaxSurge != nil {
		allowed += u.MaxSurge.IntValue()
	}
	down := 0
	for _, n := range w.nodes {
		if !w.input().serves(n) {
			down++
		}
	}
	if down > allowed {
		w.fail("a deadly revision took %d nodes down, of %d", down, allowed)
	}
	w.image("v11")
	w.record()
	w.rest()
	w.demand(w.nodes)
}

// restWhile lets something go on between the passes.
func (w *world) restWhile(goes func()) {
	for range 100 {
		w.record()
		w.view = len(w.past) - 1
		w.pass()
		w.live(true)
		goes()
		w.now = w.now.Add(time.Second)
	}
	w.record()
}

// demand asks for a pod of the wanted revision, and available, on each node.
func (w *world) demand(nodes []*corev1.Node) {
	in := w.input()
	for _, n := range nodes {
		old := slices.DeleteFunc(slices.Clone(in.Pods), func(p *corev1.Pod) bool {
			return p.Spec.Containers[0].Image == in.DaemonSet.Spec.Template.Spec.Containers[0].Image
		})
		if !in.serves(n, old...) {
			w.fail("%s is not updated:\n%s", n.Name, Decide(in))
		}
	}
}
