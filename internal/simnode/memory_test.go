package simnode

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// TestMemoryOfAFleet prints what 5,000 nodes cost: the fleet itself, and what its
// watches and lives keep once five running pods are on each node.
func TestMemoryOfAFleet(t *testing.T) {
	const count, podsEach, bound = 5000, 5, 50_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	specs := make([]Spec, count)
	for i := range specs {
		specs[i] = Spec{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{"zone": fmt.Sprint(i % 3), "pool": "a"}}
	}
	f := New(Config{Nodes: specs})
	state := heap() - before
	kept := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byNode: f.indexByNode})
	keep := func(obj any, err error) {
		if err == nil {
			err = kept.Add(obj)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now := metav1.Now()
	for _, n := range f.order {
		o := n.object()
		o.Status = n.status("v1", now, now)
		keep(slimNode(o))
		for j := range podsEach {
			keep(f.slimPod(runningPod(f, n, j)))
		}
	}
	all := heap() - before
	t.Logf("%d bytes a node for the fleet; %d with %d pods on each", state/count, all/count, podsEach)
	if all/count > bound {
		t.Errorf("%d bytes a node, more than %d", all/count, bound)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(f)
}

func runningPod(f *Fleet, n *node, i int) *corev1.Pod {
	name := fmt.Sprintf("pod-%d-%s", i, n.spec.Name)
	p := podOn(name, n.spec.Name, "")
	p.UID = types.UID(name)
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d", Image: "registry.example/i:2"})
	l := f.lifeOf(cache.MetaObjectToName(p), p)
	d := n.decide(moment{pod: p, life: *l, now: time.Now()})
	p.Status, *l = *d.status, d.life
	return p
}
