package upstream

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
)

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
	strange := func(p podState) bool { return p.hash != e.upstream.hash }
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
		here := func(p podState) bool { return p.node == n }
		theirs, ours := filter(e.upstream.pods, here), filter(e.rollcall.pods, here)
		worse := func(p podState) bool {
			return !p.ready && (e.was(p) || e.upstream.updated(p)) && !slices.Contains(ours, p)
		}
		better := func(p podState) bool { return p.ready && (e.was(p) || !p.pinned) && !slices.Contains(theirs, p) }
		if e.several(n) && slices.ContainsFunc(theirs, worse) && slices.ContainsFunc(ours, better) {
			e.take(func() { e.upstream.pods = append(slices.DeleteFunc(e.upstream.pods, here), ours...) })
			kept++
		}
	}
	if kept > 0 {
		e.explainStall(-kept, kept)
	}
	return kept > 0
}

// several says that a node had more than one pod to choose from: two, or its own
// and an orphan.
func (e *ends) several(node string) bool {
	return count(slices.Concat(e.before.pods, e.before.loose), func(p podState) bool { return p.node == node }) > 1 ||
		slices.ContainsFunc(e.rollcall.pods, func(p podState) bool { return p.node == node && !p.pinned })
}

// explainHash: where a pod has the generation of this template and not its hash, a
// surge of upstream's takes it for a new pod and for an old one.
func explainHash(e *ends) bool {
	if !e.surges() || !e.onTheWay(e.rollcall) {
		return false
	}
	met := 0
	for _, both := range slices.Concat(e.before.pods, e.before.loose) {
		here := func(p podState) bool { return p.node == both.node }
		now := filter(e.rollcall.pods, here)
		if both.generation != e.rollcall.template || both.hash == e.rollcall.hash || slices.Equal(filter(e.upstream.pods, here), now) {
			continue
		}
		e.take(func() { e.upstream.pods = append(slices.DeleteFunc(e.upstream.pods, here), now...) })
		met++
	}
	if met > 0 {
		e.explainStall(-met, met) // upstream's next choice is another node
	}
	return met > 0
}

func filter(pods []podState, is func(podState) bool) []podState {
	return slices.DeleteFunc(slices.Clone(pods), func(p podState) bool { return !is(p) })
}

func count(pods []podState, is func(podState) bool) int { return len(filter(pods, is)) }

// explainExcluded: an old pod stays on a node that may keep it and is not eligible,
// and so does its revision. Where no node is eligible, a surge in percent is none
// to upstream, and the pod stays there.
func explainExcluded(e *ends) bool {
	spared := map[string]bool{} // hashes
	nowhere := e.surges() && e.rollcall.status.DesiredNumberScheduled == 0
	for _, n := range e.pair.rollcall.nodes() {
		should, may := e.pair.rollcall.wants(n)
		here := func(p podState) bool { return p.node == n.Name }
		stayed, left := &e.rollcall.pods, &e.upstream.pods
		if nowhere {
			stayed, left = left, stayed
		}
		i := slices.IndexFunc(*stayed, here)
		if should || !may || slices.ContainsFunc(*left, here) || i < 0 || (*stayed)[i].pinned && !e.was((*stayed)[i]) {
			continue
		}
		spared[(*stayed)[i].hash] = true
		e.take(func() { *stayed = slices.Delete(*stayed, i, i+1) })
	}
	e.explainSpared(&e.rollcall, &e.upstream, spared)
	e.explainSpared(&e.upstream, &e.rollcall, spared)
	return len(spared) > 0
}

// explainSpared takes out the revisions of pods that stayed in one world alone, and
// those that the other kept in their stead within the limit.
func (e *ends) explainSpared(here, there *state, hashes map[string]bool) {
	stayed := slices.DeleteFunc(e.only(here.revisions, there.revisions), func(r revisionState) bool { return !hashes[r.hash] })
	instead := slices.DeleteFunc(e.only(there.revisions, here.revisions), func(r revisionState) bool { return !e.known(r) })
	here.revisions = slices.DeleteFunc(here.revisions, func(r revisionState) bool { return slices.Contains(stayed, r) })
	if len(instead) <= len(stayed) {
		there.revisions = slices.DeleteFunc(there.revisions, func(r revisionState) bool { return slices.Contains(instead, r) })
	}
}

// known says that a revision was there before.
func (e *ends) known(r revisionState) bool {
	return len(e.only([]revisionState{r}, e.before.revisions)) == 0
}

// was says that a pod is one of those that were there: owned, perhaps by another
// name of its revision, or nobody's and now adopted.
func (e *ends) was(p podState) bool {
	relabelled := func(o podState) bool {
		o.hash = p.hash
		return o == p
	}
	adopted := func(o podState) bool {
		o.hash, o.owned, o.shape = p.hash, p.owned, p.shape
		return o == p
	}
	return slices.ContainsFunc(e.before.pods, relabelled) || slices.ContainsFunc(e.before.loose, adopted)
}

// explainOrder: a rollout that stands still has reached other nodes, but as many;
// and the last old pods to go have spared other revisions, but as many.
func explainOrder(e *ends) bool {
	theirs, ours := e.only(e.upstream.revisions, e.rollcall.revisions), e.only(e.rollcall.revisions, e.upstream.revisions)
	if len(theirs) > 0 && len(theirs) == len(ours) && !slices.ContainsFunc(append(theirs, ours...), func(r revisionState) bool { return !e.known(r) }) {
		drop := func(r revisionState) bool { return slices.Contains(theirs, r) || slices.Contains(ours, r) }
		e.upstream.revisions = slices.DeleteFunc(e.upstream.revisions, drop)
		e.rollcall.revisions = slices.DeleteFunc(e.rollcall.revisions, drop)
		e.explainStall(0, 0)
		return true
	}
	return e.explainStall(0, 0)
}

// explainSurge: a new pod that never was ready and stands alone counts against
// Rollcall's surge.
func explainSurge(e *ends) bool {
	if !e.surges() {
		return false
	}
	alone := count(e.rollcall.pods, func(p podState) bool {
		return e.rollcall.updated(p) && !p.ready && count(e.rollcall.pods, func(o podState) bool { return o.node == p.node }) == 1
	})
	return e.explainStall(-alone, -1)
}

func (e *ends) surges() bool {
	r := e.pair.rollcall.daemonSet().Spec.UpdateStrategy.RollingUpdate
	return r != nil && r.MaxSurge != nil && *r.MaxSurge != (intstr.IntOrString{})
}

// explainStall says that both worlds are on the way to the same end, with Rollcall
// ahead by so many nodes. Pods have been there before, or are new ones of one kind.
func (e *ends) explainStall(from, to int) bool {
	if slices.Equal(sorted(e.upstream.pods), sorted(e.rollcall.pods)) || !slices.Equal(e.upstream.nodes(), e.rollcall.nodes()) {
		return false
	}
	if !e.onTheWay(e.upstream) || !e.onTheWay(e.rollcall) || !e.alike() {
		return false
	}
	if ahead := e.rollcall.broken() - e.upstream.broken(); ahead < from || ahead > to {
		return false
	}
	e.upstream.revisions, e.rollcall.revisions = e.shared(e.upstream, e.rollcall), e.shared(e.rollcall, e.upstream)
	return e.take(func() { e.upstream.pods = e.rollcall.pods })
}

// alike says that the new pods of both worlds are the same but for their nodes, as
// far as both have any.
func (e *ends) alike() bool {
	kinds := func(s state) []string {
		var out []string
		for _, p := range s.pods {
			if p.pinned && !e.was(p) {
				p.node = ""
				out = append(out, p.String())
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	theirs, ours := kinds(e.upstream), kinds(e.rollcall)
	return len(theirs) == 0 || len(ours) == 0 || slices.Equal(theirs, ours)
}

func sorted(pods []podState) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return out
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
		if s.updated(p) && !p.ready {
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

// explainDeleting: a node that is being deleted gets no new pod.
func explainDeleting(e *ends) bool {
	met := false
	for _, n := range e.pair.rollcall.nodes() {
		here := func(p podState) bool { return p.node == n.Name }
		if n.DeletionTimestamp == nil || slices.ContainsFunc(e.rollcall.pods, here) {
			continue
		}
		met = e.take(func() { e.upstream.pods = slices.DeleteFunc(e.upstream.pods, here) })
	}
	return met
}
