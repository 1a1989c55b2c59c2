package engine

import (
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

const (
	// recheck is how long to wait for the caches when no event comes.
	recheck = 500 * time.Millisecond
	// giveUp bounds the wait for a write that the caches never show, as when a
	// watch is compacted over it. Repeating the write is harmless.
	giveUp = 30 * time.Second
)

// memory is what the engine knows of its own writes to one DaemonSet. Losing it,
// as in a restart, costs only time.
type memory struct {
	mu     sync.Mutex
	places []daemonset.Place
	writes []write
	turn   int // where the next pass begins its creates
}

// write is one that the caches must show before the next decision.
type write struct {
	informer func(caches) cache.SharedIndexInformer
	key      string
	uid      types.UID // "" for a create whose answer was lost: whatever has the name
	version  uint64    // 0 for a delete
	at       time.Time
}

func newMemory() *memory { return &memory{} }

func (m *memory) placesCopy() []daemonset.Place {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.places)
}

func (m *memory) keepPlaces(p []daemonset.Place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.places = p
}

// salt gives the pod of a node's place another name.
func (m *memory) salt(node string) { m.at(node, func(p *daemonset.Place) { p.Salt++ }) }

// refused notes why the API did not take a place's pod.
func (m *memory) refused(node, why string) {
	m.at(node, func(p *daemonset.Place) { p.Refused = why })
}

func (m *memory) at(node string, change func(*daemonset.Place)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.places {
		if m.places[i].Node == node {
			change(&m.places[i])
			return
		}
	}
	p := daemonset.Place{Node: node}
	change(&p)
	m.places = append(m.places, p)
}

func (m *memory) nextTurn() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn++
	return m.turn - 1
}

func pods(c caches) cache.SharedIndexInformer       { return c.podInformer }
func revisions(c caches) cache.SharedIndexInformer  { return c.revisionInformer }
func daemonSets(c caches) cache.SharedIndexInformer { return c.dsInformer }

func (m *memory) wrote(inf func(caches) cache.SharedIndexInformer, o metav1.Object) {
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	m.note(write{informer: inf, key: keyOf(o), uid: o.GetUID(), version: v, at: time.Now()})
}

func (m *memory) deleted(inf func(caches) cache.SharedIndexInformer, o metav1.Object) {
	m.note(write{informer: inf, key: keyOf(o), uid: o.GetUID(), at: time.Now()})
}

// mayExist notes a create whose answer was lost.
func (m *memory) mayExist(inf func(caches) cache.SharedIndexInformer, o metav1.Object) {
	m.note(write{informer: inf, key: keyOf(o), version: 1, at: time.Now()})
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func (m *memory) note(w write) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = append(m.writes, w)
}

func (m *memory) gone(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = slices.DeleteFunc(m.writes, func(w write) bool { return w.uid == uid })
}

// waiting returns how long to wait until the caches may show all own writes; 0
// when they do.
func (m *memory) waiting(c caches, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = slices.DeleteFunc(m.writes, func(w write) bool { return now.Sub(w.at) > giveUp || w.shown(c) })
	if len(m.writes) > 0 {
		return recheck
	}
	return 0
}

func (w write) shown(c caches) bool {
	obj, found, err := w.informer(c).GetStore().GetByKey(w.key)
	if err != nil {
		return false
	}
	o := object(obj)
	if !found || o == nil || w.uid != "" && o.GetUID() != w.uid {
		return w.version == 0
	}
	if w.version == 0 {
		return o.GetDeletionTimestamp() != nil
	}
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return v >= w.version
}
