package daemonset

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The twin reads the rule of an update in place once more, by trying every set of
// nodes. It is held against Decide for every small fleet in every state.

// standing is one node and its pod: one of podStates and of nodeStates.
type standing struct{ pod, node string }

var (
	podStates  = []string{"none", "old available", "old broken", "old fallen", "new available", "new unready", "terminating", "old young"}
	nodeStates = []string{"ready", "down", "silent", "fell"} // down and silent before their pod, fell after it
)

// fleet is a set of facts for the twin.
type fleet struct {
	nodes  []standing
	ages   []int // by node: the place of its pod among those of its kind, oldest first
	budget int
	undo   bool // the wanted revision is the older one
}

func TestTwinTakesTheSamePods(t *testing.T) {
	start, n := time.Now(), 0
	for _, size := range []struct{ nodes, pods, states int }{{1, 8, 4}, {2, 8, 4}, {3, 8, 3}, {4, 7, 2}} {
		if often(20) == 1 && size.nodes > 2 {
			break
		}
		n += everyFleet(size.nodes, size.pods, size.states, func(f fleet) bool {
			if fault := f.compare(Decide); fault != "" {
				t.Fatal(fault)
			}
			return true
		})
	}
	t.Logf("%d fleets in %s", n, time.Since(start).Round(time.Second/10))
}

// everyFleet makes each fleet of a size, with the ages in ever other orders, until
// it is told to stop.
func everyFleet(nodes, pods, states int, look func(fleet) bool) int {
	orders := append(permutations(nodes), make([]int, nodes)) // the last: all of one age
	n, total := 0, 1
	for range nodes {
		total *= pods * states
	}
	for code := range total {
		f := fleet{}
		for c := code; len(f.nodes) < nodes; c /= pods * states {
			f.nodes = append(f.nodes, standing{podStates[c%pods], nodeStates[c/pods%states]})
		}
		for f.budget = 1; f.budget <= min(nodes, 3); f.budget++ {
			f.ages, f.undo = orders[n%len(orders)], n%5 == 0
			if n++; !look(f) {
				return n
			}
		}
	}
	return n
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			out = append(out, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return out
}

// compare returns how the two differ, "" if they do not.
func (f fleet) compare(decides func(Input) Plan) string {
	plan := decides(f.input())
	var got []string
	for _, p := range deleted(plan) {
		got = append(got, p.Spec.NodeName)
	}
	slices.Sort(got)
	if want := f.taken(); !slices.Equal(got, want) {
		return fmt.Sprintf("%+v: taken down are %v, not %v\n%s", f, got, want, plan)
	}
	return ""
}

// taken are the nodes whose pod is to be taken down.
func (f fleet) taken() []string {
	var out []string
	down, open := 0, []int{}
	for i, n := range f.nodes {
		serves := strings.HasSuffix(n.pod, " available")
		if !serves && (n.node == "ready" || n.node == "fell" && strings.HasPrefix(n.pod, "new") && !f.undoHides()) {
			down++
		}
		switch {
		case n.pod == "old broken" && n.node != "silent":
			out = append(out, name(i))
		case n.pod == "old available" && n.node == "ready":
			open = append(open, i)
		}
	}
	for i, n := range f.nodes {
		if (n.pod == "old fallen" || n.pod == "old young") && n.node == "ready" && down <= f.budget {
			out = append(out, name(i))
		}
	}
	out = append(out, f.best(open, down)...)
	slices.Sort(out)
	return out
}

// best is the largest set of nodes that the budget lets go, and of those the one
// whose pods are oldest.
func (f fleet) best(open []int, down int) []string {
	slices.SortFunc(open, func(a, b int) int { return cmp.Or(cmp.Compare(f.ages[a], f.ages[b]), cmp.Compare(a, b)) })
	var out []string
	for set := range 1 << len(open) {
		var s []string
		for k, i := range open {
			if set>>(len(open)-1-k)&1 == 1 {
				s = append(s, name(i))
			}
		}
		if fits := down+bits.OnesCount(uint(set)) <= f.budget || set == 0; fits && len(s) >= len(out) {
			out = s // of the same size, a later set has older pods
		}
	}
	return out
}

// undoHides says that a pod of the wanted revision was there before one of another.
func (f fleet) undoHides() bool {
	return f.undo && slices.ContainsFunc(f.nodes, func(n standing) bool { return strings.HasPrefix(n.pod, "old") || n.pod == "terminating" })
}

func name(i int) string { return fmt.Sprintf("n%d", i) }

// input makes the objects: old pods an hour ago, new ones ten minutes ago, or the
// other way about on an undo; nodes went down two hours or a minute ago.
func (f fleet) input() Input {
	base, hash := unplaced()
	c := *base
	budget := intstr.FromInt32(int32(f.budget))
	c.ds = &appsv1.DaemonSet{ObjectMeta: c.ds.ObjectMeta, Spec: c.ds.Spec, Status: c.ds.Status}
	c.ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &budget}
	for i, n := range f.nodes {
		node := c.addNode(name(i), nil)
		since := map[string]time.Duration{"ready": 3 * time.Hour, "down": 2 * time.Hour, "silent": 2 * time.Hour, "fell": time.Minute}[n.node]
		status := map[string]corev1.ConditionStatus{"ready": corev1.ConditionTrue, "down": corev1.ConditionFalse, "silent": corev1.ConditionUnknown, "fell": corev1.ConditionFalse}[n.node]
		node.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(c.now.Add(-since))}
		if n.pod != "none" {
			c.pods = append(c.pods, f.pod(c.ds.UID, c.now, i, hash))
		}
	}
	return c.input()
}

// unplaced is a cluster without nodes, and the hash of its revision.
var unplaced = sync.OnceValues(func() (*cluster, string) {
	c := newCluster()
	c.ds.Spec.MinReadySeconds = 5
	c.apply(c.decide())
	return c, c.decide().Hash
})

func (f fleet) pod(ds types.UID, now time.Time, i int, hash string) *corev1.Pod {
	state := f.nodes[i].pod
	fresh := strings.HasPrefix(state, "new")
	at := now.Add(-time.Hour)
	if fresh != f.undo {
		at = now.Add(-10 * time.Minute)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + name(i), UID: types.UID(name(i)), Labels: map[string]string{"app": "agent", hashLabel: "other"},
		CreationTimestamp: metav1.NewTime(at.Add(time.Duration(f.ages[i]) * time.Second)),
		OwnerReferences:   []metav1.OwnerReference{{UID: ds, Controller: new(bool)}}},
		Spec: corev1.PodSpec{NodeName: name(i)}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	*p.OwnerReferences[0].Controller = true
	if fresh {
		p.Labels[hashLabel] = hash
	}
	ready, since := corev1.ConditionTrue, time.Minute
	switch state {
	case "old broken":
		ready = corev1.ConditionFalse
	case "old fallen", "new unready":
		ready, since = corev1.ConditionFalse, 2*time.Second
	case "old young":
		since = 2 * time.Second
	case "terminating":
		p.DeletionTimestamp = &metav1.Time{Time: now}
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
	return p
}
