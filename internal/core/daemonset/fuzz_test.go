package daemonset

import (
	"cmp"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
)

// FuzzDecide makes odd facts of bytes.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(64) {
		d := seeded(seed)
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(d.IntN(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkOdd(t, byteDice{&b}) })
}

// TestOddFactsHaveAPlan rolls them: far more in the time than the fuzzer, which
// knows better where to look.
func TestOddFactsHaveAPlan(t *testing.T) {
	for seed := range uint64(often(10_000)) {
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			checkOdd(t, seeded(seed))
		}()
	}
}

// checkOdd: whatever the facts are, there is a plan; it does not depend on their
// order, leaves them as they are and leaves nothing to do.
func checkOdd(t *testing.T, d dice) {
	in := oddInput(d)
	before := in.deepCopy()
	plan := Decide(in)
	if !in.equals(before) {
		t.Fatalf("the input was changed by\n%s", plan)
	}
	if other := Decide(in.shuffled(d)); other.String() != plan.String() || !slices.Equal(inNodes(other.Places), inNodes(plan.Places)) || !equality.Semantic.DeepEqual(other.Status, plan.Status) {
		t.Fatalf("another order gives another plan:\n%s\n---\n%s", plan, other)
	}
	checkShape(t, in, plan)
	c := in.carried(plan)
	again := c.decide()
	if len(again.Actions) > 0 {
		t.Fatalf("the plan is no fixed point; it is followed by\n%s\nafter\n%s", again, plan)
	}
	c.now = after(c.now, again)
	if later := c.decide(); len(later.Actions) > 0 || !equality.Semantic.DeepEqual(bare(later.Status), bare(again.Status)) {
		t.Fatalf("nothing wakes at %s for\n%s\nafter\n%s", c.now, later, again)
	}
}

func inNodes(places []Place) []Place {
	return slices.SortedFunc(slices.Values(places), func(a, b Place) int { return cmp.Compare(a.Node, b.Node) })
}

// checkShape: a plan does one thing to a pod and makes at most one pod for a node,
// calls every node once, in order, and counts no less than nothing.
func checkShape(t *testing.T, in Input, plan Plan) {
	seen := map[string]bool{}
	for _, a := range plan.Actions {
		key := string(a.Verb) + " "
		switch {
		case a.Verb == CreatePod:
			key += a.Node
		case a.Pod != nil:
			key += string(a.Pod.UID)
		default:
			key += a.Revision.Name
		}
		if seen[key] && a.Verb != BumpCollision {
			t.Fatalf("%s twice in\n%s", key, plan)
		}
		seen[key] = true
	}
	if plan.Warning == nil && in.DaemonSet.DeletionTimestamp == nil && len(plan.Roll) != len(in.Nodes) {
		t.Fatalf("%d nodes, but\n%s", len(in.Nodes), plan)
	}
	for i, p := range plan.Roll {
		if i > 0 && p.Node <= plan.Roll[i-1].Node || p.State != Present && len(p.Reasons) == 0 {
			t.Fatalf("the roll is out of order or without a reason in\n%s", plan)
		}
	}
	if s := plan.Status; min(s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.NumberAvailable, s.NumberUnavailable, s.NumberMisscheduled, s.UpdatedNumberScheduled) < 0 {
		t.Fatalf("a counter is negative in\n%s", plan)
	}
}
