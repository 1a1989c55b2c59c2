package daemonset

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// update takes the next step of a rolling update.
func (d *decision) update() {
	switch {
	case d.in.DaemonSet.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType:
	case len(d.plan.Wrong) > 0: // a setting that cannot be read holds the rollout
	case d.surges:
		d.updateBeside()
		d.sunset()
	default:
		d.updateInPlace()
	}
}

// candidate is an old pod that the update may replace.
type candidate struct {
	spot *spot
	pod  *corev1.Pod
	free bool // replacing it takes no available pod away
}

// updateInPlace deletes old pods: broken ones without cost, available ones while
// fewer nodes than the budget are without an available pod. Ones in between, which
// are ready for too short a time or not ready for as short a one, have a place of
// the budget already: they go unless more nodes than the budget are without. One
// that is never long enough in either state would hold the update for ever.
func (d *decision) updateInPlace() {
	free := d.maxUnavailable - d.unavailable()
	for _, c := range d.candidates() {
		switch {
		case c.free:
			d.remove(c.spot, c.pod, fit.OldPodBroken, "an old pod that was broken already is replaced")
		case !d.nodeIsReady(c.spot):
		case !d.available(c.pod) && free >= 0:
			d.remove(c.spot, c.pod, fit.OldRevision, "its turn in the rolling update, as its node counts as unavailable anyway")
		case d.available(c.pod) && free > 0:
			free--
			d.remove(c.spot, c.pod, fit.OldRevision, "its turn in the rolling update")
		}
	}
}

// updateBeside creates new pods beside old ones while fewer nodes than the budget
// have two; tidySurge ends the old ones.
func (d *decision) updateBeside() {
	surge := d.surging()
	for _, c := range d.candidates() {
		if len(c.spot.pods) != 1 {
			continue // another one is terminating there
		}
		if c.free {
			if d.create(c.spot, fit.OldPodBroken, "a new pod for an old one that was broken already") {
				d.remove(c.spot, c.pod, fit.OldPodBroken, "an old pod that was broken already is replaced")
			}
		} else if surge < d.maxSurge && d.nodeIsReady(c.spot) && d.create(c.spot, fit.OldRevision, "a new pod beside the old one") {
			surge++
		}
	}
	d.beside = surge
}

// sunset ends old pods on nodes that the template no longer wants, while enough
// pods are available elsewhere.
func (d *decision) sunset() {
	available, left := 0, []candidate{}
	for _, s := range d.spots {
		if s.node == nil {
			continue
		}
		pods := d.running(s)
		up := slices.ContainsFunc(pods, d.available)
		if up {
			available++
		}
		if !s.verdict.ShouldRun && len(pods) == 1 && !d.updated(pods[0]) && d.nodeIsReady(s) {
			left = append(left, candidate{spot: s, pod: pods[0], free: !up && d.broken(s, pods[0])})
		}
	}
	for _, c := range left {
		switch {
		case c.free:
			d.remove(c.spot, c.pod, fit.OldPodBroken, "an old pod that was broken already, on a node that is no longer eligible")
		case available > d.desired && d.available(c.pod):
			available--
			d.remove(c.spot, c.pod, fit.NodeNotEligible, "the node is no longer eligible, and enough other pods are available")
		}
	}
}

// surging counts the nodes where a new pod that is not available yet stands beside
// an old one that is not broken, and those where it stands alone and has had its
// time, or the node went down under it: a new pod that takes the old one down with
// it must not free the place for the next node.
func (d *decision) surging() int {
	n := 0
	for _, s := range d.spots {
		if s.node == nil {
			continue
		}
		old, fresh, failed := false, false, false
		for _, p := range d.running(s) {
			if !d.updated(p) {
				old = old || !d.broken(s, p)
			} else if !d.available(p) {
				fresh, failed = true, failed || d.broken(s, p)
			}
		}
		if fresh && (old || failed && s.verdict.ShouldRun && d.nodeIsReady(s) || d.brokeNode(s)) {
			n++
		}
	}
	return n
}

// candidates are the nodes that have an old pod and no other, in a fixed order:
// broken ones, then the oldest, then by node. A pod on an excluded node stays, as
// it could not come back; so does one on a node that no longer reports, as nobody
// knows how it is, and all of them would be replaced at once when it returns.
func (d *decision) candidates() []candidate {
	var out []candidate
	for _, s := range d.spots {
		if s.node == nil || !s.verdict.ShouldRun {
			continue
		}
		pods := d.running(s)
		if len(pods) != 1 || d.updated(pods[0]) || d.waitsBackoff(s) {
			continue
		}
		if status, _ := nodeReady(s.node); status == corev1.ConditionUnknown && pods[0].Spec.NodeName != "" {
			continue
		}
		out = append(out, candidate{spot: s, pod: pods[0], free: d.broken(s, pods[0])})
	}
	slices.SortStableFunc(out, func(a, b candidate) int {
		return cmp.Or(compareBool(a.free, b.free), a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.spot.name, b.spot.name))
	})
	return out
}

// waitsBackoff says that a pod that ended stays on the node until its backoff ends.
func (d *decision) waitsBackoff(s *spot) bool { return !s.waits.IsZero() }

// running are the pods of a place that go on after this plan.
func (d *decision) running(s *spot) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.pods {
		if p.DeletionTimestamp == nil && !ended(p) && !d.removed[p.UID] {
			out = append(out, p)
		}
	}
	return out
}

// unavailable counts the nodes without an available pod, whatever made them so.
func (d *decision) unavailable() int {
	n := 0
	for _, s := range d.spots {
		if s.node == nil || slices.ContainsFunc(d.running(s), d.available) {
			continue
		}
		if s.verdict.ShouldRun && d.nodeIsReady(s) || d.brokeNode(s) {
			n++
		}
	}
	return n
}

func (d *decision) nodeIsReady(s *spot) bool {
	status, _ := nodeReady(s.node)
	return status == corev1.ConditionTrue
}

// brokeNode says that the node went down, or was tainted against its pods, after
// this update had started a pod there: the update may be why. A pod of the wanted
// revision that is older than one of another was there before the update, which then
// goes back to a revision.
func (d *decision) brokeNode(s *spot) bool {
	status, since := nodeReady(s.node)
	tainted := status == corev1.ConditionTrue && !s.verdict.ShouldRun && s.verdict.ShouldContinue
	if status == corev1.ConditionTrue && !tainted {
		return false
	}
	return slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool {
		started := p.CreationTimestamp
		if p.Status.StartTime != nil {
			started = *p.Status.StartTime
		}
		if d.removed[p.UID] && ended(p) {
			return false // it is gone after this plan
		}
		return d.updated(p) && p.Spec.NodeName != "" && (tainted || started.Time.Before(since)) && !p.CreationTimestamp.Time.Before(d.newestOld)
	})
}

// fresh is the pod of the wanted revision that stands on a node beside others.
func (d *decision) fresh(s *spot) *corev1.Pod {
	if i := slices.IndexFunc(s.pods, d.updated); i >= 0 {
		return s.pods[i]
	}
	return nil
}

// pending says why an old pod is still there.
func (d *decision) pending(s *spot, p *corev1.Pod) *fit.Reason {
	if d.updated(p) || !s.verdict.ShouldRun {
		return nil
	}
	r := &fit.Reason{Code: fit.RevisionPending, Object: "pod/" + p.Name}
	fresh := d.fresh(s)
	switch {
	case d.removed[p.UID]:
		return nil
	case fresh != nil && d.unschedulable(fresh):
		r.Code, r.Object = fit.SurgeBlocked, "pod/"+fresh.Name
		r.Message = "the new pod finds no room beside the old one: " + d.absence(s, fresh).Message
		r.Remedy = "set maxSurge to 0 and maxUnavailable to 1, or make room for two pods"
	case len(d.plan.Wrong) > 0:
		*r = d.plan.Wrong[0]
	case d.in.DaemonSet.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType:
		r.Message = "its pod is of an older revision, and updateStrategy OnDelete leaves it"
		r.Remedy = "kubectl delete pod -n " + p.Namespace + " " + p.Name
	case !d.nodeIsReady(s):
		r.Message = "its pod is of an older revision, and the node is not ready"
	case s.created:
		r.Message = "its pod is of an older revision; a new one is created beside it"
	case fresh != nil:
		r.Code, r.Object = fit.SurgePending, "pod/"+fresh.Name
		r.Message = fmt.Sprintf("its pod is of an older revision; the new one beside it, %s, is not available: %s", fresh.Name, d.absence(s, fresh).Message)
	case d.surges:
		r.Limit, r.Free = fmt.Sprint(d.maxSurge), fmt.Sprint(max(0, d.maxSurge-d.beside))
		r.Message = fmt.Sprintf("its pod is of an older revision; its turn comes while fewer than %d nodes have a new pod that is not available (maxSurge)", d.maxSurge)
	default:
		r.Limit, r.Free = fmt.Sprint(d.maxUnavailable), fmt.Sprint(max(0, d.maxUnavailable-d.down))
		r.Message = fmt.Sprintf("its pod is of an older revision; its turn comes while fewer than %d nodes are without an available pod (maxUnavailable)", d.maxUnavailable)
	}
	return r
}
