package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// mutant is Rollcall with one fault, put in from outside.
type mutant struct {
	name    string
	says    string // what the check that sees it says
	decides func(Input) Plan
	world   func(*world)
	twin    bool // the twin must see it as well
}

var mutants = []mutant{
	{name: "takes one node more than the budget", says: "available pods are taken down", decides: overdrawn, twin: true},
	{name: "counts only new pods against the budget", says: "available pods are taken down", decides: forgetful, twin: true},
	{name: "surges to one node more than maxSurge", says: "maxSurge is", decides: func(in Input) Plan {
		u := in.DaemonSet.Spec.UpdateStrategy
		if u.RollingUpdate == nil || u.RollingUpdate.MaxSurge == nil || u.RollingUpdate.MaxSurge.IntValue() == 0 {
			return Decide(in)
		}
		n, ds := intstr.FromInt32(u.RollingUpdate.MaxSurge.IntVal+1), *in.DaemonSet
		ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: u.RollingUpdate.MaxUnavailable, MaxSurge: &n}
		in.DaemonSet = &ds
		return Decide(in)
	}},
	{name: "takes nodes in the order of the input", says: "another order gives another plan", decides: unordered, twin: true},
	{name: "deletes by name alone", says: "deleted a pod that it did not know", decides: Decide, world: func(w *world) { w.byName = true }},
	{name: "has random names and does not wait for the caches", says: "two pods of one revision", decides: Decide, world: func(w *world) { w.checked, w.random = false, true }},
	{name: "has random names", says: "two pods of one revision", decides: Decide, world: func(w *world) { w.checked, w.random = true, true }},
	{name: "does not back off", says: "is replaced after", decides: func(in Input) Plan {
		in.Places = slices.Clone(in.Places)
		for i, p := range in.Places {
			in.Places[i].Failures = min(1, p.Failures)
		}
		return Decide(in)
	}},
	{name: "makes the next pod at once", says: "no fixed point", decides: func(in Input) Plan {
		in.Places = nil
		return Decide(in)
	}},
	{name: "leaves the status as it was", says: "the status should be", decides: func(in Input) Plan {
		p := Decide(in)
		p.Status = in.DaemonSet.Status
		return p
	}},
	{name: "does not wake", says: "nothing wakes", decides: func(in Input) Plan {
		p := Decide(in)
		p.Wake = time.Time{}
		return p
	}},
	{name: "sorts what it was given", says: "the input was changed", decides: func(in Input) Plan {
		slices.SortFunc(in.Pods, func(a, b *corev1.Pod) int { return strings.Compare(b.Name, a.Name) })
		return Decide(in)
	}},
	{name: "forgets a node", says: "after all faults", decides: func(in Input) Plan {
		p := Decide(in)
		p.Actions = slices.DeleteFunc(p.Actions, func(a Action) bool { return a.Verb == CreatePod && a.Node == "n1" })
		return p
	}},
	{name: "lets one node's failure stop the others", says: "changes what is done elsewhere", decides: func(in Input) Plan {
		p := Decide(in)
		if slices.ContainsFunc(in.Pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }) {
			p.Actions = slices.DeleteFunc(p.Actions, func(a Action) bool { return a.Verb == CreatePod })
		}
		return p
	}},
	{name: "waits for a pod that flaps", says: "is not updated", decides: func(in Input) Plan {
		p := Decide(in)
		p.Actions = slices.DeleteFunc(p.Actions, func(a Action) bool { return a.Verb == DeletePod && a.Reason.Code == fit.OldRevision && !in.up(a.Pod) })
		return p
	}},
	{name: "stops an update at every dead node", says: "is not updated", decides: func(in Input) Plan {
		p := Decide(in)
		if !slices.ContainsFunc(in.Nodes, func(n *corev1.Node) bool { return !healthy(n) }) {
			return p
		}
		p.Actions = slices.DeleteFunc(p.Actions, func(a Action) bool { return a.Reason.Code == fit.OldRevision })
		return p
	}},
	{name: "deletes again what it made", says: "no fixed point", decides: func(in Input) Plan {
		p := Decide(in)
		for _, pod := range in.Pods {
			if len(p.Actions) == 0 && pod.DeletionTimestamp == nil && pod.Spec.NodeName == "" {
				p.Actions = append(p.Actions, Action{Verb: DeletePod, Node: target(pod), Pod: pod})
			}
		}
		return p
	}},
}

// TestTheChecksBite shows that each mutant is seen, and by the check that is meant.
func TestTheChecksBite(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			histories, steps, says := m.walk(4000)
			if !strings.Contains(says, m.says) {
				t.Errorf("in %d histories the walk said %.400q", histories, says)
			}
			t.Logf("seen in history %d, after %d steps", histories, steps)
			if m.twin {
				n, fault := 0, ""
				for size := 2; size <= 3 && fault == ""; size++ {
					n += everyFleet(size, 8, 2, func(f fleet) bool { fault = f.compare(m.decides); return fault == "" })
				}
				if fault == "" {
					t.Error("the twin does not see it")
				}
				t.Logf("the twin sees it in fleet %d", n)
			}
		})
	}
}

// fall is the end of a history in which a check failed.
type fall string

type faller struct{}

func (faller) Fatalf(format string, args ...any) { panic(fall(fmt.Sprintf(format, args...))) }

// walk goes through histories until a check fails.
func (m mutant) walk(limit uint64) (histories uint64, steps int, says string) {
	for seed := range limit {
		n, says := m.history(seed)
		if steps += n; says != "" {
			return seed + 1, steps, says
		}
	}
	return limit, steps, ""
}

func (m mutant) history(seed uint64) (steps int, says string) {
	d := seeded(seed)
	w := newWorld(faller{}, d, m.decides)
	w.checked = d.roll(2, "") == 0
	if m.world != nil {
		m.world(w)
	}
	defer func() {
		if r := recover(); r != nil {
			steps, says = w.steps, fmt.Sprint(r)
		}
	}()
	w.history()
	return w.steps, ""
}

// withBudget changes the number of nodes that an update in place may take.
func withBudget(in Input, change func(int) int) Input {
	u := in.DaemonSet.Spec.UpdateStrategy
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || in.budget() == 0 {
		return in
	}
	n := intstr.FromInt32(int32(change(in.budget())))
	ds := *in.DaemonSet
	ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &n}
	in.DaemonSet = &ds
	return in
}

func overdrawn(in Input) Plan { return Decide(withBudget(in, func(n int) int { return n + 1 })) }

// forgetful takes the available pods that it would take if no old pod were broken.
func forgetful(in Input) Plan {
	plan, broken := Decide(in), 0
	for _, a := range plan.Actions {
		if a.Verb == DeletePod && a.Reason.Code == fit.OldPodBroken {
			broken++
		}
	}
	if broken == 0 {
		return plan
	}
	return Decide(withBudget(in, func(n int) int { return n + broken }))
}

// unordered gives each turn in an update to whichever comes first in the input.
func unordered(in Input) Plan {
	plan := Decide(in)
	open := Decide(withBudget(in, func(int) int { return 100 })).Actions
	turn := func(a Action) bool { return a.Verb == DeletePod && a.Reason.Code == fit.OldRevision }
	for i, a := range plan.Actions {
		if !turn(a) {
			continue
		}
		for _, p := range in.Pods {
			k := slices.IndexFunc(open, func(o Action) bool { return turn(o) && o.Pod.UID == p.UID })
			if k >= 0 && !slices.ContainsFunc(plan.Actions[:i], func(o Action) bool { return o.Verb == DeletePod && o.Pod.UID == p.UID }) {
				plan.Actions[i] = open[k]
				break
			}
		}
	}
	return plan
}
