package daemonset

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPlansHoldTheInvariants walks random histories and checks, in every step,
// that order does not matter, that a plan is a fixed point, that no node gets two
// pods of a revision, and that the budget holds.
func TestPlansHoldTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster()
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			c.addNode(fmt.Sprintf("n%d", i), map[string]string{"zone": fmt.Sprint(i % 2)})
		}
		budget := rapid.IntRange(1, 3).Draw(t, "maxUnavailable")
		c.ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal = int32(budget)
		c.settle(100)
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "what") == 0 {
				c.ds = c.ds.DeepCopy()
				image := rapid.SampledFrom([]string{"v1", "v2", "bad1", "bad2", "bad3"}).Draw(t, "image")
				if image != c.ds.Spec.Template.Spec.Containers[0].Image {
					c.ds.Spec.Template.Spec.Containers[0].Image = image
					c.ds.Generation++
					c.ds.Annotations["deprecated.daemonset.template.generation"] = fmt.Sprint(c.ds.Generation)
				}
			}
			checkStep(t, c, step, budget)
			if rapid.Bool().Draw(t, "kubelets") {
				c.kubelets()
			}
			c.now = c.now.Add(rapid.SampledFrom([]time.Duration{0, 1, 5, 30}).Draw(t, "seconds") * time.Second)
		}
	})
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkStep(t failer, c *cluster, step, budget int) {
	plan := c.decide()
	in := c.input()
	in.Nodes, in.Pods, in.Revisions = shuffled(in.Nodes), shuffled(in.Pods), shuffled(in.Revisions)
	if other := Decide(in).String(); other != plan.String() {
		t.Fatalf("step %d: another order gives another plan:\n%s\n---\n%s", step, plan, other)
	}
	before := int(c.ds.Status.NumberUnavailable)
	c.apply(plan)
	if again := c.decide(); len(again.Actions) > 0 {
		t.Fatalf("step %d: the plan is no fixed point; it is followed by\n%s\nafter\n%s", step, again, plan)
	}
	took, down := 0, int(plan.Status.NumberUnavailable)
	for _, a := range plan.Actions {
		if a.Verb == DeletePod && ready(a.Pod) {
			took++
		}
	}
	if took > 0 && down+took > budget {
		t.Fatalf("step %d: %d ready pods are taken down while %d nodes are unavailable; the budget is %d (before: %d)\n%s", step, took, down, budget, before, plan)
	}
	seen := map[string]bool{}
	for _, p := range c.pods {
		key := target(p) + " " + p.Labels[hashLabel]
		if p.DeletionTimestamp == nil && seen[key] {
			t.Fatalf("step %d: two pods of one revision on %s\n%s", step, key, plan)
		}
		seen[key] = seen[key] || p.DeletionTimestamp == nil
	}
}

func shuffled[T any](in []T) []T {
	out := append([]T(nil), in...)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
