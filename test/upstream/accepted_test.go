package upstream

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/daemon"
)

// ends are two settled worlds. Each accepted difference that is met is taken out
// of the states; what is left afterwards nobody has accepted.
type ends struct {
	before             state // what both were
	upstream, rollcall state
	pair               *pair
}

func (p *pair) ends() *ends {
	return &ends{before: p.before, upstream: p.upstream.state(), rollcall: p.rollcall.state(), pair: p}
}

// left lists the differences, and what a status says that the pods do not bear out.
func (e *ends) left() []string {
	out := differences(e.upstream, e.rollcall)
	for _, w := range []struct {
		name  string
		world *world
	}{{"upstream", e.pair.upstream}, {"rollcall", e.pair.rollcall}} {
		if want, have := w.world.recount(), w.world.state().status; !equality.Semantic.DeepEqual(want, have) {
			out = append(out, fmt.Sprintf("%s counts %s, the pods are %s", w.name, counters(have), counters(want)))
		}
	}
	return out
}

// accepted is one row of docs/differences.md.
type accepted struct {
	id string
	// explain takes the difference out of both states if it is there, and says
	// whether it did. It is nil for what leaves no trace once all is settled.
	explain func(*ends) bool
}

var table = []accepted{
	{id: "conditions", explain: explainConditions},
	{id: "history-limit", explain: explainHistory},
	{id: "doubled-revision", explain: explainDoubled},
	{id: "kept-pod", explain: explainKept},
	{id: "surge-hash", explain: explainHash},
	{id: "excluded-node", explain: explainExcluded},
	{id: "order", explain: explainOrder},
	{id: "budget", explain: explainBudget},
	{id: "surge-budget", explain: explainSurge},
}

// explain returns the accepted differences that the ends show, and what is left.
func (e *ends) explain() (met, left []string) {
	for _, a := range table {
		if a.explain != nil && a.explain(e) {
			met = append(met, a.id)
		}
	}
	return met, e.left()
}

// explainConditions: Rollcall's own types are there, upstream sets none.
func explainConditions(e *ends) bool {
	own := []string{"Available", "Progressing", "Reconciling", "Stalled"}
	if len(e.upstream.conditions) > 0 || !slices.Equal(e.rollcall.conditions, own) {
		return false
	}
	e.rollcall.conditions = nil
	return true
}

// explainHistory: an old revision that worked is spared beyond the limit; the next
// one may go in its stead.
func explainHistory(e *ends) bool {
	spared := e.only(e.rollcall.revisions, e.upstream.revisions)
	for _, s := range []*state{&e.upstream, &e.rollcall} {
		for i := range s.revisions {
			s.revisions[i].stable = false // upstream's are copies
		}
	}
	if len(spared) != 1 || !spared[0].stable || spared[0].hash == e.rollcall.hash {
		return false
	}
	is := func(r revisionState) bool { return r.name == spared[0].name }
	e.rollcall.revisions = slices.DeleteFunc(e.rollcall.revisions, is)
	if went := e.only(e.upstream.revisions, e.rollcall.revisions); len(went) == 1 && went[0].number < e.rollcall.newest() {
		e.upstream.revisions = slices.DeleteFunc(e.upstream.revisions, func(r revisionState) bool { return r == went[0] })
	}
	return true
}

// only lists the revisions that the others lack.
func (e *ends) only(these, others []revisionState) []revisionState {
	return slices.DeleteFunc(slices.Clone(these), func(r revisionState) bool {
		return slices.ContainsFunc(others, func(o revisionState) bool { return o.name == r.name })
	})
}

func (s state) newest() int64 {
	n := int64(0)
	for _, r := range s.revisions {
		n = max(n, r.number)
	}
	return n
}

// take makes upstream's pods in places Rollcall's; what is counted of pods follows,
// as it has been checked against them.
func (e *ends) take(replace func()) bool {
	replace()
	s := e.rollcall.status
	s.ObservedGeneration, s.CollisionCount = e.upstream.status.ObservedGeneration, e.upstream.status.CollisionCount
	e.upstream.status = s
	return true
}

// explainDoubled: upstream has called every pod one of the kept revision, and may
// have replaced one that its cache still showed with the old label.
func explainDoubled(e *ends) bool {
	strange := func(p podState) bool { return p.owned && p.hash != e.upstream.hash }
	if !e.pair.doubled || len(e.left()) == 0 || slices.ContainsFunc(e.upstream.pods, strange) || !e.onTheWay(e.rollcall) {
		return false
	}
	e.rollcall.revisions = e.shared(e.rollcall, e.upstream)
	return e.take(func() { e.upstream.pods = e.rollcall.pods })
}

// explainKept: of several pods on a node Rollcall has kept one that is ready, and
// upstream an older one that is not. What that frees of the budget goes to others.
func explainKept(e *ends) bool {
	kept := 0
	for _, n := range e.rollcall.nodes() {
		here := func(p podState) bool { return p.owned && p.node == n }
		before, now := filter(e.upstream.pods, here), filter(e.rollcall.pods, here)
		worse := func(p podState) bool { return !p.ready && e.was(p) && !slices.Contains(now, p) }
		better := func(p podState) bool { return p.ready && (e.was(p) || !p.pinned) && !slices.Contains(before, p) }
		if slices.ContainsFunc(before, worse) && slices.ContainsFunc(now, better) {
			e.take(func() { e.upstream.pods = append(slices.DeleteFunc(e.upstream.pods, here), now...) })
			kept++
		}
	}
	if kept > 0 {
		e.explainStall(-kept, kept)
	}
	return kept > 0
}

// explainHash: where a pod has the generation of this template and not its hash, a
// surge of upstream's takes it for a new pod and for an old one.
func explainHash(e *ends) bool {
	if !e.surges() || !e.onTheWay(e.rollcall) {
		return false
	}
	met := false
	for _, both := range e.before.pods {
		here := func(p podState) bool { return p.owned && p.node == both.node }
		if both.generation != e.rollcall.template || both.hash == e.rollcall.hash || slices.Equal(filter(e.upstream.pods, here), filter(e.rollcall.pods, here)) {
			continue
		}
		met = e.take(func() {
			e.upstream.pods = append(slices.DeleteFunc(e.upstream.pods, here), filter(e.rollcall.pods, here)...)
		})
	}
	return met
}

func filter(pods []podState, is func(podState) bool) []podState {
	return slices.DeleteFunc(slices.Clone(pods), func(p podState) bool { return !is(p) })
}

func count(pods []podState, is func(podState) bool) int { return len(filter(pods, is)) }

// explainExcluded: an old pod stays on a node that may keep it and is not eligible,
// and so does its revision.
func explainExcluded(e *ends) bool {
	spared := map[string]bool{} // hashes
	for _, n := range e.pair.rollcall.nodes() {
		should, may := e.pair.rollcall.wants(n)
		on := func(p podState) bool { return p.node == n.Name && p.owned }
		i := slices.IndexFunc(e.rollcall.pods, on)
		if should || !may || slices.ContainsFunc(e.upstream.pods, on) || i < 0 || e.rollcall.pods[i].pinned && !e.was(e.rollcall.pods[i]) {
			continue
		}
		spared[e.rollcall.pods[i].hash] = true
		e.take(func() { e.rollcall.pods = slices.Delete(e.rollcall.pods, i, i+1) })
	}
	e.rollcall.revisions = slices.DeleteFunc(e.rollcall.revisions, func(r revisionState) bool {
		return spared[r.hash] && !slices.Contains(e.upstream.revisions, r)
	})
	return len(spared) > 0
}

// was says that a pod is one of those that were there, perhaps under other labels.
func (e *ends) was(p podState) bool {
	return slices.ContainsFunc(e.before.pods, func(o podState) bool {
		o.hash, o.owned, o.shape = p.hash, p.owned, p.shape
		return o == p
	})
}

// explainOrder: a rollout that stands still has reached other nodes, but as many.
func explainOrder(e *ends) bool { return e.explainStall(0, 0) }

// explainBudget: pods on nodes that are not eligible count against upstream's
// budget alone.
func explainBudget(e *ends) bool {
	broken := 0
	for _, n := range e.pair.rollcall.nodes() {
		if should, _ := e.pair.rollcall.wants(n); !should && slices.ContainsFunc(e.rollcall.pods, func(p podState) bool { return p.node == n.Name && p.owned && !p.ready }) {
			broken++
		}
	}
	return e.explainStall(1, broken)
}

// explainSurge: a new pod that never was ready and stands alone counts against
// Rollcall's surge.
func explainSurge(e *ends) bool {
	if !e.surges() {
		return false
	}
	alone := count(e.rollcall.pods, func(p podState) bool {
		return p.owned && e.rollcall.updated(p) && !p.ready && count(e.rollcall.pods, func(o podState) bool { return o.owned && o.node == p.node }) == 1
	})
	return e.explainStall(-alone, -1)
}

func (e *ends) surges() bool {
	r := e.pair.rollcall.daemonSet().Spec.UpdateStrategy.RollingUpdate
	return r != nil && r.MaxSurge != nil && *r.MaxSurge != (intstr.IntOrString{})
}

// explainStall says that both worlds are on the way to the same end, with Rollcall
// ahead by so many nodes. Pods are the wanted ones, or have been there before.
func (e *ends) explainStall(from, to int) bool {
	if len(e.left()) == 0 || !slices.Equal(e.upstream.nodes(), e.rollcall.nodes()) || !e.onTheWay(e.upstream) || !e.onTheWay(e.rollcall) {
		return false
	}
	if ahead := e.rollcall.broken() - e.upstream.broken(); ahead < from || ahead > to {
		return false
	}
	e.upstream.revisions, e.rollcall.revisions = e.shared(e.upstream, e.rollcall), e.shared(e.rollcall, e.upstream)
	return e.take(func() { e.upstream.pods = e.rollcall.pods })
}

// shared leaves out the revisions that only this state has, as its pods show them.
func (e *ends) shared(s, other state) []revisionState {
	only := e.only(s.revisions, other.revisions)
	return slices.DeleteFunc(slices.Clone(s.revisions), func(r revisionState) bool {
		return slices.Contains(only, r) && slices.ContainsFunc(s.pods, func(p podState) bool { return p.hash == r.hash })
	})
}

func (e *ends) onTheWay(s state) bool {
	return !slices.ContainsFunc(s.pods, func(p podState) bool { return p.hash != s.hash && p.pinned && !e.was(p) })
}

// broken counts the updated pods that are not ready: where the rollout stands.
func (s state) broken() int {
	n := 0
	for _, p := range s.pods {
		if p.owned && s.updated(p) && !p.ready {
			n++
		}
	}
	return n
}

// nodes are the names of the nodes that have a pod.
func (s state) nodes() []string {
	set := map[string]bool{}
	for _, p := range s.pods {
		set[p.node] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// wants is upstream's answer to whether the node should have a pod, and whether it
// may keep one.
func (w *world) wants(n *corev1.Node) (should, may bool) {
	ds := w.daemonSet()
	if ds == nil {
		return false, false
	}
	return daemon.NodeShouldRunDaemonPod(klog.Logger{}, n, ds)
}
