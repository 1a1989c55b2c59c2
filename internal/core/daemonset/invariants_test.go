package daemonset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// TestPlansHoldTheInvariants walks random histories in which everything goes
// wrong, and checks each plan and each write. In the end the faults stop, and
// every node gets its pod. Half of the histories act on stale caches.
func TestPlansHoldTheInvariants(t *testing.T) {
	steps, start := 0, time.Now()
	for steps < often(100_000) {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t, rapidDice{t}, Decide)
			w.checked = w.dice.roll(2, "stale") == 0
			w.history()
			steps += w.steps
		})
	}
	t.Logf("%d steps in %s", steps, time.Since(start).Round(time.Second/10))
}

// often is how often something is done: all the times, or far fewer under the race
// detector, which makes each many times slower, and with -short.
func often(times int) int {
	if underRace || testing.Short() {
		return times / 20
	}
	return times
}

// history is one random history from the first pod to the end of all faults.
func (w *world) history() {
	for i := range 1 + w.dice.roll(6, "nodes") {
		w.addNode(fmt.Sprintf("n%d", i), nil)
	}
	w.newStrategy()
	w.ds.Spec.MinReadySeconds = pick(w.dice, "minReadySeconds", int32(0), 0, 3, 20)
	limit := pick(w.dice, "history", int32(10), 2, 0)
	w.ds.Spec.RevisionHistoryLimit = &limit
	w.begin()
	for range 10 + w.dice.roll(40, "steps") {
		w.happens()
		w.land()
		w.look()
		w.pass()
		w.live(false)
		w.now = w.now.Add(pick(w.dice, "time", 0, 0, time.Second, 5*time.Second, 30*time.Second))
	}
	w.heal()
	w.epilogue()
}

// begin puts a pod on every node.
func (w *world) begin() {
	for range 3 {
		w.apply(w.decide())
		w.kubelets()
		w.now = w.now.Add(10 * time.Second)
	}
	w.record()
	w.view = len(w.past) - 1
}

// happens lets something go wrong, or somebody change something.
func (w *world) happens() {
	event := w.dice.roll(24, "event")
	w.tell("event %d", event)
	switch event {
	case 1, 2:
		w.image(pick(w.dice, "image", "v1", "v2", "bad1", "bad2", "bad3"))
	case 3, 4, 5:
		w.changeNode(w.someNode(), "", "", pick(w.dice, "ready", "True", "True", "False", "Unknown"))
	case 6:
		w.changeNode(w.someNode(), "", pick(w.dice, "taint", "none", "none", "x:NoSchedule", "x:NoExecute"), "")
	case 7, 8, 9:
		w.hurt()
	case 10:
		w.places, w.own, w.view = nil, 0, len(w.past)-1 // a restart: all caches are filled anew
		w.ending = map[string]ending{}
	case 11:
		w.nodeGoes()
	case 12:
		w.nodeComes()
	case 13:
		w.refused, w.quota = setAll(nil, []string{w.someNode()}, "refused"), w.dice.roll(4, "quota")
	case 14, 15:
		w.refused, w.quota = nil, 0
	case 16:
		w.newStrategy()
	case 17:
		w.setClock(pick(w.dice, "clock", -time.Hour, -time.Minute, -time.Second, time.Minute, 20*time.Minute))
	case 18:
		w.rejects = setAll(nil, []string{w.someNode()}, "OutOfcpu")
	case 19:
		w.rejects = nil
	case 20:
		w.replaceByHand()
	case 21:
		w.revisions = slices.DeleteFunc(slices.Clone(w.revisions), func(*appsv1.ControllerRevision) bool { return w.dice.roll(2, "revision") == 1 })
	}
	w.record()
}

func (w *world) someNode() string { return w.nodes[w.dice.roll(len(w.nodes), "node")].Name }

func (c *cluster) image(image string) {
	if image != c.ds.Spec.Template.Spec.Containers[0].Image {
		c.template(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Image = image })
	}
}

// newStrategy is a budget in place, a surge, or, seldom, OnDelete.
func (w *world) newStrategy() {
	w.ds = w.ds.DeepCopy()
	w.ds.Generation++
	u, s := intstr.FromInt32(int32(1+w.dice.roll(3, "budget"))), intstr.FromInt32(0)
	if rarely(w.dice, 3, "surge") {
		u, s = s, u
	}
	w.ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &u, MaxSurge: &s}}
	if rarely(w.dice, 8, "OnDelete") {
		w.ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	}
}

// hurt does something to a pod.
func (w *world) hurt() {
	if len(w.pods) == 0 {
		return
	}
	what := w.dice.roll(9, "hurt")
	w.change(w.pods[w.dice.roll(len(w.pods), "pod")].UID, func(p *corev1.Pod) {
		switch what {
		case 0, 1:
			w.changeReady(p, "False", "", "")
		case 2, 3:
			changePod(p, "Failed", "", "")
		case 4:
			changePod(p, "Succeeded", "", "")
		case 5:
			p.Annotations = map[string]string{sick: pick(w.dice, "sick", "no", "yes")}
		case 6:
			p.OwnerReferences = nil
		case 7:
			p.Labels = map[string]string{"app": "other"}
		default: // deleted by hand
			at := p.CreationTimestamp
			p.DeletionTimestamp = &at
		}
	})
}

// replaceByHand makes a pod anew under its name, as kubectl replace --force does.
func (w *world) replaceByHand() {
	if len(w.pods) == 0 {
		return
	}
	w.change(w.pods[w.dice.roll(len(w.pods), "pod")].UID, func(p *corev1.Pod) {
		p.UID, p.CreationTimestamp, p.DeletionTimestamp = w.uid(), metav1.NewTime(w.now), nil
		p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	})
}

func (w *world) nodeGoes() {
	i := w.dice.roll(len(w.nodes), "node")
	if rarely(w.dice, 2, "finalizer") {
		at := w.nodes[i].CreationTimestamp
		w.nodes = slices.Clone(w.nodes)
		w.nodes[i] = w.nodes[i].DeepCopy()
		w.nodes[i].DeletionTimestamp = &at
	} else if len(w.nodes) > 1 {
		w.nodes = slices.Delete(slices.Clone(w.nodes), i, i+1)
	}
}

// nodeComes adds a node, under a name that may have been in use and may still be
// in pods; it has another UID.
func (w *world) nodeComes() {
	name := fmt.Sprintf("n%d", w.dice.roll(8, "name"))
	if !slices.ContainsFunc(w.nodes, func(n *corev1.Node) bool { return n.Name == name }) {
		w.nodes = slices.Clone(w.nodes)
		w.addNode(name, nil)
	}
}

// setClock moves the clock; one that goes back makes known endings recent.
func (w *world) setClock(by time.Duration) {
	w.now = w.now.Add(by)
	for node, e := range w.ending {
		if e.at.After(w.now) {
			e.at = w.now
			w.ending[node] = e
		}
	}
}

// heal stops all faults, and demands one ready pod of the wanted revision on every
// node that is there, and that nothing is left to be done.
func (w *world) heal() {
	w.calm, w.refused, w.quota, w.rejects = true, nil, 0, nil
	w.land()
	w.late = nil
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(n *corev1.Node) bool { return n.DeletionTimestamp != nil })
	if len(w.nodes) == 0 {
		w.addNode("n9", nil)
	}
	for _, n := range w.nodes {
		w.changeNode(n.Name, "", "none", "True")
	}
	for _, p := range w.pods {
		w.change(p.UID, func(p *corev1.Pod) { p.Annotations = nil })
	}
	w.image("v9")
	if w.ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		one := intstr.FromInt32(1)
		w.ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}}
	}
	w.record()
	in, plan := w.rest()
	n := int32(len(w.nodes))
	if s := plan.Status; len(plan.Actions) > 0 || s.NumberAvailable != n || s.UpdatedNumberScheduled != n || s.NumberMisscheduled != 0 {
		w.fail("after all faults:\n%s", plan)
	}
	for _, node := range w.nodes {
		if !in.serves(node) {
			w.fail("after all faults %s is not served\n%s", node.Name, plan)
		}
	}
}

// rest lets passes and kubelets work until nothing is left to do.
func (w *world) rest() (Input, Plan) {
	for range 300 {
		w.view = len(w.past) - 1
		w.pass()
		w.live(true)
		in := w.input()
		plan := w.decides(in)
		switch {
		case len(plan.Actions) == 0 && plan.Wake.IsZero():
			return in, plan
		case len(plan.Actions) == 0:
			w.now = plan.Wake
		default:
			w.now = w.now.Add(time.Second)
		}
	}
	w.fail("no rest")
	return Input{}, Plan{}
}
