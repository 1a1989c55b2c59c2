package daemonset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// TestPlansHoldTheInvariants walks random histories and checks, in every step,
// that order does not matter, that inputs stay as they are, that a plan is a fixed
// point, that no node gets two pods of a revision, and that the budget holds. In
// the end the faults stop, and every node gets its pod.
func TestPlansHoldTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster()
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			c.addNode(fmt.Sprintf("n%d", i), map[string]string{"zone": fmt.Sprint(i % 2)})
		}
		surge := rapid.IntRange(0, 3).Draw(t, "surge") == 0
		budget := rapid.IntRange(1, 3).Draw(t, "budget")
		u, s := intstr.FromInt32(int32(budget)), intstr.FromInt32(0)
		if surge {
			u, s = s, u
		}
		c.ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, c.ds.Spec.UpdateStrategy.RollingUpdate.MaxSurge = &u, &s
		c.ds.Spec.MinReadySeconds = rapid.SampledFrom([]int32{0, 0, 3, 20}).Draw(t, "minReadySeconds")
		limit := rapid.SampledFrom([]int32{0, 2, 10}).Draw(t, "history")
		c.ds.Spec.RevisionHistoryLimit = &limit
		c.settle(20 * time.Second)
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			c.stumble(t)
			if rapid.IntRange(0, 5).Draw(t, "lose") == 0 {
				c.lose(t)
			}
			checkStep(t, c, step, budget)
			if rapid.Bool().Draw(t, "kubelets") {
				c.kubelets()
			}
			c.now = c.now.Add(rapid.SampledFrom([]time.Duration{0, 1, 5, 30}).Draw(t, "seconds") * time.Second)
		}
		c.heal(t)
	})
}

// stumble lets something go wrong, or somebody change something.
func (c *cluster) stumble(t *rapid.T) {
	node := func() string { return c.nodes[rapid.IntRange(0, len(c.nodes)-1).Draw(t, "node")].Name }
	switch rapid.IntRange(0, 19).Draw(t, "event") {
	case 0, 1:
		c.image(rapid.SampledFrom([]string{"v1", "v2", "bad1", "bad2", "bad3"}).Draw(t, "image"))
	case 2:
		c.changeNode(node(), "", "", rapid.SampledFrom([]string{"True", "False", "Unknown"}).Draw(t, "ready"))
	case 3:
		c.changeNode(node(), "", rapid.SampledFrom([]string{"none", "x:NoSchedule", "x:NoExecute"}).Draw(t, "taint"), "")
	case 4, 5:
		if len(c.pods) > 0 {
			p := c.pods[rapid.IntRange(0, len(c.pods)-1).Draw(t, "pod")]
			what := rapid.SampledFrom([]string{"fail", "succeed", "unready", "orphan", "relabel"}).Draw(t, "what")
			c.change(p.UID, func(p *corev1.Pod) { c.hurt(p, what) })
		}
	case 6:
		c.places = nil // a restart
	}
}

// lose carries out only some of a plan's writes.
func (c *cluster) lose(t *rapid.T) {
	plan := c.decide()
	plan.Actions = slices.DeleteFunc(plan.Actions, func(Action) bool { return rapid.Bool().Draw(t, "lost") })
	c.apply(plan)
}

func (c *cluster) hurt(p *corev1.Pod, what string) {
	switch what {
	case "fail":
		changePod(p, "Failed", "", "")
	case "succeed":
		changePod(p, "Succeeded", "", "")
	case "unready":
		c.changeReady(p, "False", "", "")
	case "orphan":
		p.OwnerReferences = nil
	case "relabel":
		p.Labels = map[string]string{"app": "other"}
	}
}

func (c *cluster) image(image string) {
	c.ds = c.ds.DeepCopy()
	if image != c.ds.Spec.Template.Spec.Containers[0].Image {
		c.template(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Image = image })
	}
}

// heal stops all faults, and demands one ready pod of the wanted revision on every
// node that is eligible.
func (c *cluster) heal(t *rapid.T) {
	for _, n := range c.nodes {
		c.changeNode(n.Name, "", "none", "True")
	}
	c.image("v9")
	for i := range 45 {
		c.apply(c.decide())
		c.kubelets()
		c.now = c.now.Add(time.Duration(i) * 5 * time.Second)
	}
	p := c.decide()
	n := int32(len(c.nodes))
	if s := p.Status; len(p.Actions) > 0 || s.NumberAvailable != n || s.UpdatedNumberScheduled != n || s.NumberMisscheduled != 0 {
		t.Fatalf("after all faults:\n%s", p)
	}
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkStep(t failer, c *cluster, step, budget int) {
	before := c.input().deepCopy()
	plan := c.decide()
	if in := c.input(); !equality.Semantic.DeepEqual(in.DaemonSet, before.DaemonSet) || !equality.Semantic.DeepEqual(in.Pods, before.Pods) ||
		!equality.Semantic.DeepEqual(in.Revisions, before.Revisions) || !equality.Semantic.DeepEqual(in.Nodes, before.Nodes) {
		t.Fatalf("step %d: the input was changed", step)
	}
	in := c.input()
	in.Nodes, in.Pods, in.Revisions, in.Places = shuffled(in.Nodes), shuffled(in.Pods), shuffled(in.Revisions), shuffled(in.Places)
	if other := Decide(in).String(); other != plan.String() {
		t.Fatalf("step %d: another order gives another plan:\n%s\n---\n%s", step, plan, other)
	}
	checkBudget(t, c, plan, step, budget)
	c.apply(plan)
	if again := c.decide(); len(again.Actions) > 0 {
		t.Fatalf("step %d: the plan is no fixed point; it is followed by\n%s\nafter\n%s", step, again, plan)
	}
	seen := map[string]bool{}
	for _, p := range c.pods {
		if metav1.GetControllerOf(p) == nil || p.DeletionTimestamp != nil {
			continue
		}
		key := target(p) + " " + p.Labels[hashLabel]
		if seen[key] {
			t.Fatalf("step %d: two pods of one revision on %s\n%s", step, key, plan)
		}
		seen[key] = true
	}
}

// checkBudget counts for itself: a step may take an available pod away from an
// eligible, healthy node only while fewer such nodes than the budget have none.
func checkBudget(t failer, c *cluster, plan Plan, step, budget int) {
	if *c.ds.Spec.UpdateStrategy.RollingUpdate.MaxSurge != intstr.FromInt32(0) {
		budget = 0
	}
	minReady := time.Duration(c.ds.Spec.MinReadySeconds) * time.Second
	up := func(p *corev1.Pod) bool {
		r := condition(p, corev1.PodReady)
		return p.DeletionTimestamp == nil && p.Labels["app"] == "agent" && r != nil && r.Status == corev1.ConditionTrue && !ended(p) &&
			(minReady == 0 || !r.LastTransitionTime.Add(minReady).After(c.now))
	}
	taken := map[string]bool{}
	for _, a := range plan.Actions {
		if a.Verb == DeletePod {
			taken[string(a.Pod.UID)] = true
		}
	}
	down, took := 0, 0
	for _, n := range c.nodes {
		if status, _ := nodeReady(n); status != corev1.ConditionTrue || len(n.Spec.Taints) > 0 {
			continue
		}
		had := slices.ContainsFunc(c.pods, func(p *corev1.Pod) bool { return target(p) == n.Name && up(p) })
		has := slices.ContainsFunc(c.pods, func(p *corev1.Pod) bool { return target(p) == n.Name && up(p) && !taken[string(p.UID)] })
		if !has {
			down++
		}
		if had && !has {
			took++
		}
	}
	if took > 0 && down > budget {
		t.Fatalf("step %d: %d available pods are taken down, which leaves %d nodes without one; the budget is %d\n%s", step, took, down, budget, plan)
	}
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

func shuffled[T any](in []T) []T {
	out := append([]T(nil), in...)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
