package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// fail ends the history and tells its last steps.
func (w *world) fail(format string, args ...any) {
	var told strings.Builder
	for _, s := range w.told[max(0, len(w.told)-60):] {
		fmt.Fprintf(&told, s.format+"\n", s.args...)
	}
	w.t.Fatalf("%s\nafter\n%s", fmt.Sprintf(format, args...), told.String())
}

// sentence is one of a history; it is put into words when that is needed.
type sentence struct {
	format string
	args   []any
}

func (w *world) tell(format string, args ...any) { w.told = append(w.told, sentence{format, args}) }

// check looks at one plan, and at the input as it was before, if that is kept.
func (w *world) check(in Input, before *Input, plan Plan) {
	if before != nil && !in.equals(*before) {
		w.fail("the input was changed by\n%s", plan)
	}
	if p := w.decides(in.shuffled(w.dice)); p.String() != plan.String() {
		w.fail("another order gives another plan:\n%s\n---\n%s", plan, p)
	}
	w.checkBudget(in, plan)
	w.checkSurge(in, plan)
	w.checkStatus(in, plan)
	w.checkEndings(in, plan)
	switch w.dice.roll(2, "look at") {
	case 0:
		w.checkRest(in, plan)
	default:
		w.checkNeighbours(in, plan)
	}
}

// checkBudget: a plan may take an available pod away from a node that is wanted
// and healthy only while fewer such nodes than the budget have none.
func (w *world) checkBudget(in Input, plan Plan) {
	gone := deleted(plan)
	down, took := 0, 0
	for _, n := range in.Nodes {
		if !wanted(n) || !healthy(n) {
			continue
		}
		if !in.serves(n, gone...) {
			down++
			if in.serves(n) {
				took++
			}
		}
	}
	if took > 0 && down > in.budget() {
		w.fail("%d available pods are taken down, which leaves %d nodes without one; the budget is %d\n%s", took, down, in.budget(), plan)
	}
}

// checkSurge: a plan puts new pods beside available ones only while fewer nodes
// than maxSurge have a new pod that is not available beside such a one. One that
// has ended takes no room.
func (w *world) checkSurge(in Input, plan Plan) {
	made := map[string]bool{}
	for _, a := range plan.Actions {
		if a.Verb == CreatePod && a.Reason.Code == fit.OldRevision {
			made[a.Node] = true
		}
	}
	if len(made) == 0 {
		return
	}
	gone, count := deleted(plan), 0
	for _, n := range in.Nodes {
		old, fresh := false, made[n.Name]
		for _, p := range in.Pods {
			if target(p) != n.Name || !in.mine(p) || p.DeletionTimestamp != nil || ended(p) || slices.Contains(gone, p) {
				continue
			}
			old = old || !in.current(p, plan.Hash) && in.up(p)
			fresh = fresh || in.current(p, plan.Hash) && !in.up(p)
		}
		if old && fresh {
			count++
		}
	}
	if surge := in.DaemonSet.Spec.UpdateStrategy.RollingUpdate.MaxSurge.IntValue(); count > surge {
		w.fail("%d nodes have a new pod beside an available one; maxSurge is %d\n%s", count, surge, plan)
	}
}

// checkStatus: the counters are those of what stands before the plan.
func (w *world) checkStatus(in Input, plan Plan) {
	if want := in.counters(plan.Hash); !equality.Semantic.DeepEqual(bare(plan.Status), want) {
		w.fail("the status should be %+v\n%+v\n%s", want, plan.Status, plan)
	}
}

// checkRest: a plan that is carried out leaves nothing to do, now and until it
// wakes, and the counters stand still as long.
func (w *world) checkRest(in Input, plan Plan) {
	c := in.carried(plan)
	again := w.decides(c.input())
	if len(again.Actions) > 0 {
		w.fail("the plan is no fixed point; it is followed by\n%s\nafter\n%s", again, plan)
	}
	c.now = after(c.now, again)
	later := w.decides(c.input())
	if len(later.Actions) > 0 || !equality.Semantic.DeepEqual(bare(later.Status), bare(again.Status)) {
		w.fail("nothing wakes at %s for\n%s\nafter\n%s", c.now, later, again)
	}
}

// checkNeighbours: what is wrong on one node changes nothing for the others, but
// for the update, which has one budget.
func (w *world) checkNeighbours(in Input, plan Plan) {
	if len(in.Nodes) == 0 {
		return
	}
	node := in.Nodes[w.dice.roll(len(in.Nodes), "left out")].Name
	own := func(p Plan) string {
		p.Actions = slices.DeleteFunc(slices.Clone(p.Actions), func(a Action) bool {
			return a.Node == node || a.Node == "" || slices.Contains([]fit.Code{fit.OldRevision, fit.OldPodBroken, fit.NodeNotEligible}, a.Reason.Code)
		})
		return Plan{Actions: p.Actions}.String()
	}
	if with, without := own(plan), own(w.decides(in.without(node))); with != without {
		w.fail("%s changes what is done elsewhere:\n%s\nwithout it:\n%s", node, with, without)
	}
}

// ending is what is known of the pods that ended on a node, one after the other.
type ending struct {
	count int
	at    time.Time
}

// checkEndings: after each pod that ended the next one waits twice as long, and no
// pod is made within a second.
func (w *world) checkEndings(in Input, plan Plan) {
	for node := range w.ending {
		there := slices.ContainsFunc(in.Nodes, func(n *corev1.Node) bool { return n.Name == node })
		if !there && !slices.ContainsFunc(in.Pods, func(p *corev1.Pod) bool { return target(p) == node }) {
			delete(w.ending, node)
		}
	}
	for _, a := range plan.Actions {
		e, known := w.ending[a.Node]
		gap := w.now.Sub(e.at)
		switch {
		case a.Verb == CreatePod && known && gap < time.Second:
			w.fail("a pod is made %s after the last one ended on %s\n%s", gap, a.Node, plan)
		case a.Verb != DeletePod || !ended(a.Pod) || a.Reason.Code != fit.PodFailed && a.Reason.Code != fit.PodSucceeded:
			continue
		}
		if !in.current(a.Pod, plan.Hash) || gap > 30*time.Minute {
			e.count = 0
		} else if wait := min(time.Second<<max(0, min(e.count, 30)-1), 15*time.Minute); e.count > 0 && gap < wait {
			w.fail("pod number %d that ended on %s is replaced after %s, not %s\n%s", e.count+1, a.Node, gap, wait, plan)
		}
		w.ending[a.Node] = ending{e.count + 1, w.now}
	}
}

// checkWrite looks at the store after a write.
func (w *world) checkWrite(in, before Input, a Action) {
	switch {
	case a.Verb == CreatePod:
		w.checkTwins(in)
	case a.Verb == DeletePod && in.pod(a.Pod.UID) == nil:
		w.fail("%s deleted a pod that it did not know", a)
	case a.Verb == DeletePod:
		w.checkLoss(in, before, a)
	}
}

// checkTwins: the newest pod is the only one of its revision on its node, but for
// one that somebody else made since the caches were filled.
func (w *world) checkTwins(in Input) {
	now := w.input()
	made := now.Pods[len(now.Pods)-1]
	w.made[made.UID] = true
	for _, p := range now.Pods {
		if p == made || target(p) != target(made) || p.Labels[hashLabel] != made.Labels[hashLabel] || p.DeletionTimestamp != nil {
			continue
		}
		if metav1.IsControlledBy(p, now.DaemonSet) && now.mine(p) && (w.made[p.UID] || in.pod(p.UID) != nil) {
			w.fail("two pods of one revision on %s: %s and %s", target(p), p.Name, made.Name)
		}
	}
}

// checkLoss: what Rollcall has taken down stays within the budget, also where the
// caches do not show it yet. A pod that fell or recovered by itself since they were
// filled cannot be known, nor a delete that was done without an answer.
func (w *world) checkLoss(in, before Input, a Action) {
	now := w.input()
	took, down := false, 0
	for _, n := range now.Nodes {
		i := slices.IndexFunc(in.Nodes, func(o *corev1.Node) bool { return o.UID == n.UID })
		if !wanted(n) || !healthy(n) || now.serves(n) || i < 0 || !wanted(in.Nodes[i]) || !healthy(in.Nodes[i]) {
			continue
		}
		if before.serves(n) && in.serves(in.Nodes[i]) && !in.serves(in.Nodes[i], a.Pod) {
			took, w.lost[n.Name] = true, true
		}
		if w.lost[n.Name] || !in.serves(in.Nodes[i]) {
			down++
		}
	}
	if took && down > in.budget() && w.checked && w.view >= w.doubt && len(w.late) == 0 {
		w.fail("%s leaves %d nodes without an available pod; the budget is %d", a, down, in.budget())
	}
}
