package daemonset

import (
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// world is a cluster behind an API that fails, seen through caches that lag, with
// Rollcall at work in it as the engine would have it. What it does is checked.
type world struct {
	*cluster
	dice dice
	t    failer

	decides func(Input) Plan
	checked bool // a pass waits until the caches show its own last writes
	byName  bool // a delete hits the pod of that name, whichever it is
	random  bool // the API server makes up the names of pods
	calm    bool // no write fails

	past      []snapshot // what the caches may show, one for each change
	view, own int        // what they show; what they must show before the next pass
	doubt     int        // up to where deletes were done without an answer
	late      []lateDelete

	made   map[types.UID]bool // pods that Rollcall made
	lost   map[string]bool    // nodes that Rollcall took the last available pod from
	ending map[string]ending  // by node
	steps  int
	told   []sentence
}

type snapshot struct {
	ds        *appsv1.DaemonSet
	nodes     []*corev1.Node
	pods      []*corev1.Pod
	revisions []*appsv1.ControllerRevision
}

// lateDelete is a delete that is under way for some steps.
type lateDelete struct {
	in   Input
	do   Action
	wait int
}

type failer interface {
	Fatalf(format string, args ...any)
}

func newWorld(t failer, d dice, decides func(Input) Plan) *world {
	w := &world{cluster: newCluster(), dice: d, t: t, decides: decides, checked: true, made: map[types.UID]bool{}, lost: map[string]bool{}, ending: map[string]ending{}}
	w.record()
	return w
}

// record notes a state of the store. A node with an available pod is not lost.
func (w *world) record() {
	w.past = append(w.past, snapshot{w.ds, slices.Clone(w.nodes), slices.Clone(w.pods), slices.Clone(w.revisions)})
	for _, n := range w.nodes {
		if w.lost[n.Name] && w.input().serves(n) {
			w.lost[n.Name] = false
		}
	}
}

// seen is what the caches show.
func (w *world) seen() Input {
	s := w.past[w.view]
	return Input{Now: w.now, DaemonSet: s.ds, Nodes: s.nodes, Pods: s.pods, Revisions: s.revisions, Places: w.places}
}

// look lets the caches catch up, more or less.
func (w *world) look() {
	if behind := len(w.past) - 1 - w.view; rarely(w.dice, 3, "stale") {
		w.view += w.dice.roll(behind+1, "seen")
	} else {
		w.view += behind
	}
}

// pass is one pass of the engine.
func (w *world) pass() {
	if w.checked && w.view < w.own {
		return
	}
	in := w.seen()
	var before *Input
	if rarely(w.dice, 16, "keep the input") {
		c := in.deepCopy()
		before = &c
	}
	plan := w.decides(in)
	w.steps++
	w.tell("%s pass at change %d of %d for %s: %v", w.now, w.view, len(w.past)-1, in.DaemonSet.Spec.Template.Spec.Containers[0].Image, plan.Actions)
	w.check(in, before, plan)
	w.places = plan.Places
	w.carryOut(in, plan)
}

// carryOut writes in the engine's order, and like it goes on after a pod that was
// refused, but not after anything else.
func (w *world) carryOut(in Input, plan Plan) {
	for _, a := range plan.Actions {
		if a.Verb != CreatePod && a.Verb != DeletePod && !w.send(in, a) {
			return
		}
	}
	for _, verb := range []Verb{DeletePod, CreatePod} {
		for _, a := range plan.Actions {
			if a.Verb == verb {
				w.send(in, a)
			}
		}
	}
	if fate := w.fate(); in.DaemonSet == w.ds && fate != refused {
		w.ds = w.ds.DeepCopy()
		w.ds.Status = plan.Status
		w.record()
		w.note(fate)
	}
}

// What may become of a write.
const (
	answered   = iota
	unanswered // done, but nobody is told
	refused    // or lost on the way
	repeated
	slow
)

func (w *world) fate() int {
	if w.calm || !rarely(w.dice, 4, "fault") {
		return answered
	}
	return 1 + w.dice.roll(4, "fate")
}

// send writes once, twice, or not at all, and says whether it was told so.
func (w *world) send(in Input, a Action) bool {
	fate := w.fate()
	if fate != answered {
		w.tell("  %s: fate %d", a, fate)
	}
	switch {
	case fate == refused:
		return false
	case fate == slow && a.Verb == DeletePod:
		w.late = append(w.late, lateDelete{in, a, 1 + w.dice.roll(5, "late")})
		return false
	}
	err := w.write(in, a)
	if fate == repeated {
		w.write(in, a)
	}
	switch {
	case errors.Is(err, errExists) && a.Verb == CreatePod:
		i := slices.IndexFunc(w.pods, func(p *corev1.Pod) bool { return p.Name == a.Pod.Name })
		if p := w.pods[i]; !metav1.IsControlledBy(p, w.ds) || p.DeletionTimestamp != nil {
			w.salt(a.Node)
			return false
		}
	case errors.Is(err, errConflict) && (a.Pod != nil || a.Verb == DeleteRevision):
		// not found: what was to be done needs no doing
	case err != nil:
		return false
	}
	w.note(fate)
	if fate == unanswered && a.Verb == DeletePod {
		w.doubt = len(w.past) - 1
	}
	return fate != unanswered
}

func (w *world) note(fate int) {
	if fate != unanswered {
		w.own = len(w.past) - 1
	}
}

func (w *world) salt(node string) {
	w.places = slices.Clone(w.places)
	for i := range w.places {
		if w.places[i].Node == node {
			w.places[i].Salt++
			return
		}
	}
	w.places = append(w.places, Place{Node: node, Salt: 1})
}

// write changes the store and looks at what that did.
func (w *world) write(in Input, a Action) error {
	if i := slices.IndexFunc(w.pods, func(p *corev1.Pod) bool { return a.Verb == DeletePod && p.Name == a.Pod.Name }); w.byName && i >= 0 {
		a.Pod = w.pods[i]
	}
	if w.random && a.Verb == CreatePod {
		a.Pod = a.Pod.DeepCopy()
		a.Pod.Name = fmt.Sprintf("agent-%05d", len(w.past))
	}
	before := w.input()
	err := w.carry(a)
	w.record()
	if err == nil {
		w.checkWrite(in, before, a)
	}
	return err
}

// land lets slow deletes arrive.
func (w *world) land() {
	var still []lateDelete
	for _, l := range w.late {
		if l.wait--; l.wait > 0 {
			still = append(still, l)
		} else {
			w.tell("lands: %s", l.do)
			w.write(l.in, l.do)
			w.doubt = len(w.past) - 1
		}
	}
	w.late = still
}

// live lets some kubelets work, and pod garbage collection.
func (w *world) live(all bool) {
	works := map[string]bool{}
	for _, n := range w.nodes {
		works[n.Name] = all || w.dice.roll(2, "kubelet works") == 1
	}
	w.pods = slices.DeleteFunc(slices.Clone(w.pods), func(p *corev1.Pod) bool {
		node := target(p)
		known := slices.ContainsFunc(w.nodes, func(n *corev1.Node) bool { return n.Name == node })
		return p.DeletionTimestamp != nil && works[node] && !w.down(node) || !known && p.Spec.NodeName != "" && rarely(w.dice, 4, "collected")
	})
	for _, p := range w.pods {
		if node := target(p); works[node] && !w.down(node) && !ended(p) && p.DeletionTimestamp == nil {
			w.change(p.UID, w.kubelet)
		}
	}
	w.record()
}

func (in Input) deepCopy() Input {
	out := Input{Now: in.Now, DaemonSet: in.DaemonSet.DeepCopy(), Places: slices.Clone(in.Places)}
	for _, o := range in.Revisions {
		out.Revisions = append(out.Revisions, o.DeepCopy())
	}
	for _, o := range in.Nodes {
		out.Nodes = append(out.Nodes, o.DeepCopy())
	}
	for _, o := range in.Pods {
		out.Pods = append(out.Pods, o.DeepCopy())
	}
	return out
}

func (in Input) equals(other Input) bool {
	return equality.Semantic.DeepEqual(in.DaemonSet, other.DaemonSet) && equality.Semantic.DeepEqual(in.Pods, other.Pods) &&
		equality.Semantic.DeepEqual(in.Revisions, other.Revisions) && equality.Semantic.DeepEqual(in.Nodes, other.Nodes) && slices.Equal(in.Places, other.Places)
}

// carried is a cluster in which the plan for the input has been carried out.
func (in Input) carried(plan Plan) *cluster {
	c := newCluster()
	c.now, c.ds, c.nodes, c.pods, c.revisions, c.uids = in.Now, in.DaemonSet, in.Nodes, in.Pods, in.Revisions, 1<<30
	c.apply(plan)
	return c
}

// pod returns the pod of a UID, nil if there is none.
func (in Input) pod(uid types.UID) *corev1.Pod {
	if i := slices.IndexFunc(in.Pods, func(p *corev1.Pod) bool { return p.UID == uid }); i >= 0 {
		return in.Pods[i]
	}
	return nil
}

// without is the input as it would be without a node and its pods.
func (in Input) without(node string) Input {
	in.Nodes = slices.DeleteFunc(slices.Clone(in.Nodes), func(n *corev1.Node) bool { return n.Name == node })
	in.Pods = slices.DeleteFunc(slices.Clone(in.Pods), func(p *corev1.Pod) bool { return target(p) == node })
	return in
}

func after(now time.Time, plan Plan) time.Time {
	if plan.Wake.IsZero() {
		return now.Add(1000 * time.Hour)
	}
	return plan.Wake.Add(-1)
}
