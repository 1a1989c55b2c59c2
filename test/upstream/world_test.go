package upstream

import (
	"context"
	"errors"
	"fmt"

	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/daemon"

	"github.com/rollcall-dev/rollcall/internal/engine"
)

const (
	namespace = "ns"
	name      = "agent"
)

// TestMain silences both sides: what they wrote is in the worlds. Upstream's
// handler of errors would also sleep, by a clock that differs between bubbles.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// keeper keeps DaemonSets until ctx ends.
type keeper func(ctx context.Context, client kubernetes.Interface) error

func upstreams(ctx context.Context, client kubernetes.Interface) error {
	f := informers.NewSharedInformerFactory(client, 0)
	c, err := daemon.NewDaemonSetsController(ctx, f.Apps().V1().DaemonSets(), f.Apps().V1().ControllerRevisions(),
		f.Core().V1().Pods(), f.Core().V1().Nodes(), client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		return err
	}
	f.Start(ctx.Done())
	c.Run(ctx, 2)
	f.Shutdown()
	return nil
}

func rollcalls(ctx context.Context, client kubernetes.Interface) error {
	e, err := engine.New(client)
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// world is a cluster with one DaemonSet and whoever keeps it.
type world struct {
	api  *apiserver
	stop func() error

	removed *appsv1.DaemonSet // to be made again
	drains  bool              // whether nodes that are being deleted are left out

	mu     sync.Mutex
	writes []write // of the controllers
	raced  bool    // one has written without end
	events []corev1.Event
}

func newWorld(nodes int) *world {
	w := &world{api: newAPIServer(), stop: func() error { return nil }}
	must(w.api.create(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	for i := range nodes {
		w.addNode(fmt.Sprintf("n%d", i+1))
	}
	must(w.api.create(daemonSets, newDaemonSet()))
	return w
}

// start lets a controller work in the world, in place of the one before.
func (w *world) start(c keeper) error {
	if err := w.stop(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	done := make(chan error, 1)
	go func() { done <- c(ctx, w.client()) }()
	w.stop = func() error {
		cancel()
		w.stop = func() error { return nil }
		return <-done
	}
	return nil
}

func (w *world) daemonSet() *appsv1.DaemonSet {
	o, err := w.api.get(daemonSets, namespace, name)
	if err != nil {
		return nil
	}
	return o.(*appsv1.DaemonSet)
}

func (w *world) nodes() []*corev1.Node { return all[*corev1.Node](w, nodes) }
func (w *world) pods() []*corev1.Pod   { return all[*corev1.Pod](w, pods) }
func (w *world) revisions() []*appsv1.ControllerRevision {
	return all[*appsv1.ControllerRevision](w, revisions)
}

func all[T object](w *world, resource string) []T {
	objects, _ := w.api.list(resource)
	out := make([]T, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.(T))
	}
	return out
}

func (w *world) journal() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, l := range w.writes {
		fmt.Fprintf(&b, "    %s\n", l)
	}
	return b.String()
}

// pair is the same cluster twice.
type pair struct {
	upstream, rollcall *world
	before             state          // what both were when they last were equal
	met                map[string]int // accepted differences, and how often
	doubled            bool           // whether two revisions held the same template
}

// bubble runs a test on a clock of its own; nothing in it may end the test.
func bubble(t *testing.T, test func() error) error {
	var err error
	synctest.Test(t, func(*testing.T) {
		err = test()
		time.Sleep(time.Minute) // the last timers run out
	})
	return err
}

// together runs a test of two worlds that begin alike: with so many nodes and one
// DaemonSet whose pods are ready.
func together(t *testing.T, nodes int, test func(*pair) error) error {
	return bubble(t, func() error {
		p := &pair{upstream: newWorld(nodes), rollcall: newWorld(nodes), met: map[string]int{}}
		p.rollcall.drains = true
		defer p.each(func(w *world) { w.stop() })
		if err := p.start(); err != nil {
			return err
		}
		if _, err := p.goOn("the beginning"); err != nil {
			return err
		}
		return test(p)
	})
}

func (p *pair) start() error {
	if err := p.upstream.start(upstreams); err != nil {
		return err
	}
	if err := p.rollcall.start(rollcalls); err != nil {
		return err
	}
	synctest.Wait()
	return nil
}

func (p *pair) each(f func(*world)) {
	f(p.upstream)
	f(p.rollcall)
}

const (
	quiet   = 15               // seconds without a write after which nothing is under way
	silence = 70 * time.Second // beyond every timer: a broken pod's, seven failures' backoff
	patient = 600              // seconds after which a world is said not to settle
)

func (p *pair) settle() error { return settle(p.upstream, p.rollcall) }

func (p *pair) tick(d time.Duration) { tick(d, p.upstream, p.rollcall) }

// settle lets time pass until no world changes any more.
func settle(worlds ...*world) error {
	still, before := 0, version(worlds)
	for range patient {
		tick(time.Second, worlds...)
		for _, w := range worlds {
			if w.races() {
				return errors.New("a controller writes without end")
			}
		}
		if v := version(worlds); v != before {
			still, before = 0, v
			continue
		}
		if still++; still < quiet {
			continue
		}
		for _, w := range worlds {
			w.collect()
		}
		tick(silence, worlds...)
		if version(worlds) == before {
			return nil
		}
		still = 0
	}
	return errors.New("the worlds do not settle")
}

// tick lets the controllers finish, then all pods move on, then time pass.
func tick(d time.Duration, worlds ...*world) {
	synctest.Wait()
	for _, w := range worlds {
		w.live()
	}
	time.Sleep(d)
}

func version(worlds []*world) uint64 {
	v := uint64(0)
	for _, w := range worlds {
		w.api.mu.Lock()
		v += w.api.version
		w.api.mu.Unlock()
	}
	return v
}
