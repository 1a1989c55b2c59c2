package simnode

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

const workers = 16

// Config is what a fleet is made from.
type Config struct {
	Client           kubernetes.Interface
	Nodes            []Spec
	ReadyDelay       time.Duration // from seeing a bound pod to Ready
	TerminationDelay time.Duration // from a delete to the pod's end, at most its grace period
	Version          string        // the kubelet version the nodes report
}

// Fleet is a set of simulated nodes.
type Fleet struct {
	cfg      Config
	ready    chan struct{}
	recorder record.EventRecorder
	pods     cache.SharedIndexInformer
	queue    workqueue.TypedDelayingInterface[cache.ObjectName]

	mu    sync.Mutex
	nodes map[string]*node
	lives map[cache.ObjectName]*life
}

// node is what is remembered of one node.
type node struct {
	spec  Spec
	index int
	uid   string
}

// New makes a fleet; Run starts it.
func New(cfg Config) *Fleet {
	f := &Fleet{cfg: cfg, ready: make(chan struct{}), nodes: map[string]*node{}, lives: map[cache.ObjectName]*life{},
		queue: workqueue.NewTypedDelayingQueue[cache.ObjectName]()}
	for i, s := range cfg.Nodes {
		f.nodes[s.Name] = &node{spec: s, index: i}
	}
	return f
}

// Ready is closed once every node is registered.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// Run registers the nodes and plays them until ctx ends. The Node objects stay.
func (f *Fleet) Run(ctx context.Context) error {
	defer f.queue.ShutDown()
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	f.startEvents(broadcaster)
	if err := f.register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(f.cfg.Client, 0, informers.WithTransform(slim))
	f.pods = factory.Core().V1().Pods().Informer()
	wake := func(obj any) {
		if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			f.queue.Add(key)
		}
	}
	if _, err := f.pods.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: f.ours,
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, now any) { wake(now) }, DeleteFunc: wake},
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { f.work(ctx) })
	}
	wg.Go(func() { f.beat(ctx) })
	close(f.ready)
	<-ctx.Done()
	f.queue.ShutDown()
	wg.Wait()
	factory.Shutdown()
	return nil
}

// ours says whether a pod is on one of these nodes.
func (f *Fleet) ours(obj any) bool {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	p, ok := obj.(*corev1.Pod)
	return ok && f.node(p.Spec.NodeName) != nil
}

func (f *Fleet) node(name string) *node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[name]
}

// slim drops what no simulated kubelet reads.
func slim(obj any) (any, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		p.ManagedFields = nil
		p.Spec.Volumes, p.Spec.Tolerations, p.Spec.Affinity = nil, nil, nil
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			*c = corev1.Container{Name: c.Name, Image: c.Image}
		}
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			*c = corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy}
		}
	}
	return obj, nil
}
