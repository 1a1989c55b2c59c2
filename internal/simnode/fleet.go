package simnode

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	workers = 16 // for pods, and as many for nodes

	defaultTerminationDelay = 200 * time.Millisecond
	defaultVersion          = "v1.37.0"
)

// Config is what a fleet is made from.
type Config struct {
	Client           kubernetes.Interface
	Nodes            []Spec
	ReadyDelay       time.Duration // from seeing a bound pod to Ready
	TerminationDelay time.Duration // from a delete to the pod's end, at most its grace period; 200ms
	Version          string        // the kubelet version the nodes report
	Logger           klog.Logger   // klog's own by default
}

// Fleet is a set of simulated nodes.
type Fleet struct {
	cfg      Config
	ready    chan struct{}
	order    []*node          // by index
	nodes    map[string]*node // by name; never changes after New
	beats    chan *node       // nodes whose lease is due
	pods     cache.SharedIndexInformer
	objects  cache.SharedIndexInformer // the Node objects
	queue    workqueue.TypedDelayingInterface[cache.ObjectName]
	recorder record.EventRecorder

	mu    sync.Mutex // guards the nodes' changing fields and lives
	lives map[cache.ObjectName]*life
	ips   addresses
}

// New makes a fleet; Run starts it.
func New(cfg Config) *Fleet {
	specs := cfg.Nodes
	if cfg.TerminationDelay == 0 {
		cfg.TerminationDelay = defaultTerminationDelay
	}
	if cfg.Version == "" {
		cfg.Version = defaultVersion
	}
	if cfg.Logger.GetSink() == nil {
		cfg.Logger = klog.Background()
	}
	cfg.Nodes = nil
	f := &Fleet{cfg: cfg, ready: make(chan struct{}), nodes: make(map[string]*node, len(specs)), lives: map[cache.ObjectName]*life{},
		beats: make(chan *node, 4*workers), queue: workqueue.NewTypedDelayingQueue[cache.ObjectName]()}
	for i, s := range specs {
		n := &node{spec: s, index: i}
		f.nodes[s.Name] = n
		f.order = append(f.order, n)
	}
	return f
}

// Ready is closed once every node is registered with its status and plays its pods.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// Run registers the nodes and plays them until ctx ends. The Node objects stay.
func (f *Fleet) Run(ctx context.Context) error {
	defer f.queue.ShutDown()
	if err := f.check(); err != nil {
		return err
	}
	if len(f.order) == 0 {
		close(f.ready)
		<-ctx.Done()
		return nil
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	f.startEvents(broadcaster)
	if err := f.register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	stopped, err := f.watch(ctx)
	if err != nil {
		return err
	}
	defer stopped()
	if ctx.Err() != nil {
		return nil
	}
	f.adopt()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { f.work(ctx) })
		wg.Go(func() { f.renewals(ctx) })
	}
	wg.Go(func() { f.schedule(ctx) })
	close(f.ready)
	<-ctx.Done()
	f.queue.ShutDown()
	wg.Wait()
	return nil
}

// check refuses what cannot be played.
func (f *Fleet) check() error {
	if len(f.order) > maxNodes {
		return fmt.Errorf("%d simulated nodes: there are addresses for %d", len(f.order), maxNodes)
	}
	if len(f.nodes) != len(f.order) {
		return fmt.Errorf("simulated nodes: two have the same name")
	}
	return nil
}

// SetReady makes a node stop, as a machine that loses power: no heartbeat, and its
// pods stay as they are. With ready it comes back.
func (f *Fleet) SetReady(name string, ready bool) {
	n := f.nodes[name]
	if n == nil {
		f.cfg.Logger.Info("SetReady: there is no such simulated node", "node", name)
		return
	}
	f.mu.Lock()
	n.off = !ready
	n.posted = time.Time{} // a kubelet that starts posts its status
	f.mu.Unlock()
	select {
	case <-f.ready:
	default:
		return // not playing yet
	}
	if ready {
		f.beatSoon(n)
		f.wakePodsOf(name)
	}
}

// alive says whether a node is there and has power.
func (f *Fleet) alive(n *node) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !n.off && !n.gone
}
