package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

// component is the event source; upstream's name, so that tools find the events.
const component = "daemonset-controller"

// workers is how many DaemonSets are worked on at once.
const workers = 4

// Engine keeps every DaemonSet of a cluster.
type Engine struct {
	client   kubernetes.Interface
	factory  informers.SharedInformerFactory
	caches   caches
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	recorder record.EventRecorder
	synced   chan struct{}
	meters   meters
	placer   *Placer // nil where another scheduler places every pod

	mu    sync.Mutex
	plans map[cache.ObjectName]daemonset.Plan
	state map[cache.ObjectName]*memory
}

// New makes an engine that works through client.
func New(client kubernetes.Interface) (*Engine, error) {
	e := &Engine{
		client: client,
		synced: make(chan struct{}),
		meters: newMeters(),
		plans:  map[cache.ObjectName]daemonset.Plan{},
		state:  map[cache.ObjectName]*memory{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "rollcall-daemonsets"}),
	}
	e.factory = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(dropManagedFields))
	var err error
	e.caches, err = newCaches(e.factory)
	if err != nil {
		return nil, fmt.Errorf("build the engine's caches: %w", err)
	}
	return e, e.watch()
}

// dropManagedFields keeps the caches small: nothing here reads them.
func dropManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// Synced is closed once the caches hold the cluster and work has begun.
func (e *Engine) Synced() <-chan struct{} { return e.synced }

// Plan returns the last plan made for a DaemonSet.
func (e *Engine) Plan(namespace, name string) (daemonset.Plan, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.plans[cache.ObjectName{Namespace: namespace, Name: name}]
	return p, ok
}

// Run works until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	defer e.queue.ShutDown()
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: e.client.CoreV1().Events("")})
	e.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	e.factory.Start(ctx.Done())
	for typ, ok := range e.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("fill the cache of %v: %w", typ, context.Cause(ctx))
		}
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { e.work(ctx) })
	}
	if p := e.placer; p != nil {
		p.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: schedulerSource})
		for range workers {
			wg.Go(func() { p.work(ctx) })
		}
	}
	close(e.synced)
	<-ctx.Done()
	e.queue.ShutDown()
	if e.placer != nil {
		e.placer.queue.ShutDown()
	}
	wg.Wait()
	e.factory.Shutdown()
	return nil
}

func (e *Engine) work(ctx context.Context) {
	for {
		key, quit := e.queue.Get()
		if quit {
			return
		}
		wake, err := e.sync(ctx, key)
		switch {
		case apierrors.IsConflict(err): // somebody wrote in between; the next pass sees it
			klog.V(2).InfoS("a write met another one", "daemonSet", key, "err", err)
			e.queue.AddRateLimited(key)
		case err != nil && ctx.Err() == nil:
			klog.ErrorS(err, "pass over a DaemonSet", "daemonSet", key)
			e.queue.AddRateLimited(key)
		case wake > 0:
			e.queue.Forget(key)
			e.queue.AddAfter(key, wake)
		default:
			e.queue.Forget(key)
		}
		e.queue.Done(key)
	}
}

// sync makes one pass: gather, decide, apply. It returns when to look again
// without any event, 0 for never.
func (e *Engine) sync(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	mem := e.memoryOf(key)
	// Before gathering: what the caches show afterwards may be newer than the facts.
	wait := mem.waiting(e.caches, time.Now())
	in, err := e.gather(key, mem)
	if err != nil {
		return 0, err
	}
	if in == nil {
		e.forget(key)
		return 0, nil
	}
	if wait > 0 {
		return wait, nil
	}
	began := time.Now()
	plan := daemonset.Decide(*in)
	e.meters.decide.Observe(time.Since(began).Seconds())
	e.remember(key, plan)
	mem.keepPlaces(plan.Places)
	err = e.apply(ctx, in.DaemonSet, plan, mem)
	if err != nil || plan.Wake.IsZero() {
		return 0, err
	}
	return max(plan.Wake.Sub(in.Now), time.Millisecond), nil
}

func (e *Engine) memoryOf(key cache.ObjectName) *memory {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.state[key]
	if m == nil {
		m = newMemory()
		e.state[key] = m
	}
	return m
}

func (e *Engine) remember(key cache.ObjectName, p daemonset.Plan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.meters.finishes(e.plans[key], p)
	e.plans[key] = p
}

func (e *Engine) forget(key cache.ObjectName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.plans, key)
	delete(e.state, key)
}

func nameOf(ds *appsv1.DaemonSet) cache.ObjectName {
	return cache.ObjectName{Namespace: ds.Namespace, Name: ds.Name}
}
