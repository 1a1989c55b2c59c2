package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// schedulerSource is the event source of placements; upstream's scheduler's name, so
// that tools find the events.
const schedulerSource = corev1.DefaultSchedulerName

// byNode indexes pods by the node that they are bound or pinned to, averse those with
// a required anti-affinity.
const (
	byNode = "node"
	averse = "averse"
)

// Placer binds pods that are pinned to one node (fit.Pinned). It looks at that node
// alone, and only when something there has changed.
type Placer struct {
	engine   *Engine
	nodes    corelisters.NodeLister
	budgets  policylisters.PodDisruptionBudgetLister
	queue    workqueue.TypedRateLimitingInterface[string] // nodes
	recorder record.EventRecorder

	mu      sync.Mutex
	assumed map[types.UID]assumption
}

// assumption is a binding that was accepted and that the cache does not show yet.
type assumption struct {
	pod *corev1.Pod // with its node
	at  time.Time
}

// PlacePinned makes the engine place pinned pods too, beside a scheduler that leaves
// them alone. It must be called before Run.
func (e *Engine) PlacePinned() error {
	p := &Placer{engine: e, nodes: e.caches.nodes, budgets: e.factory.Policy().V1().PodDisruptionBudgets().Lister(), assumed: map[types.UID]assumption{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "rollcall-placements"})}
	if err := e.caches.podInformer.AddIndexers(cache.Indexers{byNode: indexByNode, averse: indexAverse}); err != nil {
		return err
	}
	if err := p.watch(); err != nil {
		return err
	}
	e.placer = p
	return nil
}

func indexByNode(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	if p.Spec.NodeName != "" {
		return []string{p.Spec.NodeName}, nil
	}
	if node, yes := fit.Pinned(p); yes {
		return []string{node}, nil
	}
	if p.Status.NominatedNodeName != "" { // promised to the node by the other scheduler
		return []string{p.Status.NominatedNodeName}, nil
	}
	return nil, nil
}

func indexAverse(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" || p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil ||
		len(p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil, nil
	}
	return []string{averse}, nil
}

// watch wakes a node for what may make room there, or need it.
func (p *Placer) watch() error {
	pod := func(obj any) {
		if o, ok := object(obj).(*corev1.Pod); ok {
			if at, _ := indexByNode(o); len(at) > 0 {
				p.queue.Add(at[0])
			}
			if away, _ := indexAverse(o); len(away) > 0 {
				p.wakeWaiting()
			}
		}
	}
	if _, err := p.engine.caches.podInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: pod, DeleteFunc: pod,
		UpdateFunc: func(old, now any) {
			if podMatters(old.(*corev1.Pod), now.(*corev1.Pod)) {
				pod(old)
				pod(now)
			}
		}}); err != nil {
		return err
	}
	node := func(obj any) {
		if o := object(obj); o != nil {
			p.queue.Add(o.GetName())
		}
	}
	_, err := p.engine.caches.nodeInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: node,
		UpdateFunc: func(old, now any) {
			if a, b := old.(*corev1.Node), now.(*corev1.Node); a.Spec.Unschedulable != b.Spec.Unschedulable || nodeMatters(a, b) ||
				!equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable) {
				node(now)
			}
		}})
	return err
}

// podMatters leaves out what changes nothing about the room on a node.
func podMatters(old, now *corev1.Pod) bool {
	return old.Spec.NodeName != now.Spec.NodeName || old.Status.Phase != now.Status.Phase || old.UID != now.UID ||
		(old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) || old.Generation != now.Generation ||
		old.Status.NominatedNodeName != now.Status.NominatedNodeName || !equality.Semantic.DeepEqual(old.Labels, now.Labels) ||
		!equality.Semantic.DeepEqual(fit.Requests(old), fit.Requests(now))
}

// wakeWaiting wakes every node that a pinned pod waits for: a pod with an
// anti-affinity reaches beyond its own.
func (p *Placer) wakeWaiting() {
	for _, obj := range p.engine.caches.podInformer.GetStore().List() {
		if node, yes := fit.Pinned(obj.(*corev1.Pod)); yes {
			p.queue.Add(node)
		}
	}
}

func (p *Placer) work(ctx context.Context) {
	for {
		node, quit := p.queue.Get()
		if quit {
			return
		}
		if err := p.place(ctx, node); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "place pods", "node", node)
			p.queue.AddRateLimited(node)
		} else {
			p.queue.Forget(node)
		}
		p.queue.Done(node)
	}
}

// place looks at the pods that wait for a node, the most important first. One that
// cannot be there holds up no other, but a later one does not take what it waits for.
func (p *Placer) place(ctx context.Context, name string) error {
	node, err := p.nodes.Get(name)
	if err != nil {
		return nil //nolint:nilerr // no such node: the engine deletes what waits for it
	}
	room, waiting, err := p.room(node)
	if err != nil || len(waiting) == 0 {
		return err
	}
	var errs []error
	for _, pod := range waiting {
		why := room.Obstacles(pod)
		if len(why) == 0 {
			bound, err := p.bind(ctx, pod, name)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			room.Pods = append(room.Pods, bound)
			continue
		}
		nominated, err := p.refuse(ctx, pod, room, why)
		errs = append(errs, err)
		if nominated {
			room.Pods = append(room.Pods, pod)
		}
	}
	return errors.Join(errs...)
}

// room gathers what is on the node, and what waits for it in the order of its turn.
func (p *Placer) room(node *corev1.Node) (fit.Room, []*corev1.Pod, error) {
	room := fit.Room{Node: node, NodeOf: p.node, NamespaceOf: p.namespace}
	objs, err := p.engine.caches.podInformer.GetIndexer().ByIndex(byNode, node.Name)
	if err != nil {
		return room, nil, err
	}
	var waiting, promised []*corev1.Pod
	for _, obj := range objs {
		pod := p.assume(obj.(*corev1.Pod))
		switch _, pinned := fit.Pinned(pod); {
		case pod.Spec.NodeName != "":
			room.Pods = append(room.Pods, pod)
		case pinned:
			waiting = append(waiting, pod)
		case pod.DeletionTimestamp == nil:
			promised = append(promised, pod)
		}
	}
	if len(waiting) == 0 {
		return room, nil, nil
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(fit.Priority(b), fit.Priority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	// What upstream's scheduler has promised to pods of higher priority is taken; those
	// of equal priority come after a pod that has no other node.
	for _, o := range promised {
		if fit.Priority(o) > fit.Priority(waiting[0]) {
			room.Pods = append(room.Pods, o)
		}
	}
	away, err := p.engine.caches.podInformer.GetIndexer().ByIndex(averse, averse)
	for _, obj := range away {
		room.Averse = append(room.Averse, obj.(*corev1.Pod))
	}
	return room, waiting, err
}

func (p *Placer) node(name string) *corev1.Node {
	n, err := p.nodes.Get(name)
	if err != nil {
		return nil
	}
	return n
}

func (p *Placer) namespace(name string) *corev1.Namespace {
	ns, err := p.engine.caches.namespaces.Get(name)
	if err != nil {
		return nil
	}
	return ns
}

// assume returns the pod as bound where its binding is only not shown yet.
func (p *Placer) assume(pod *corev1.Pod) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.assumed[pod.UID]
	if !ok {
		return pod
	}
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || time.Since(a.at) > giveUp {
		delete(p.assumed, pod.UID)
		return pod
	}
	return a.pod
}

func (p *Placer) bind(ctx context.Context, pod *corev1.Pod, node string) (*corev1.Pod, error) {
	err := p.engine.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{ObjectMeta: objectMeta(pod),
		Target: corev1.ObjectReference{Kind: "Node", Name: node}}, createOptions)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or bound already
		return pod, nil
	case err != nil:
		return nil, fmt.Errorf("bind %s/%s to %s: %w", pod.Namespace, pod.Name, node, err)
	}
	p.recorder.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assumed[pod.UID] = assumption{bound, time.Now()}
	return bound, nil
}

// refuse says on the pod why it cannot be on its node, and ends pods of lower
// priority where that helps. A pod that waits for room is nominated: what frees up is
// its, before other pods of the same priority.
func (p *Placer) refuse(ctx context.Context, pod *corev1.Pod, room fit.Room, why []fit.Obstacle) (nominated bool, err error) {
	curable := !slices.ContainsFunc(why, func(o fit.Obstacle) bool { return !o.Curable })
	none := ""
	if curable {
		budgets, err := p.budgets.List(labels.Everything())
		if err != nil {
			return false, err
		}
		var victims []*corev1.Pod
		if victims, none = room.Victims(pod, budgets); len(victims) > 0 {
			none = fmt.Sprintf("found a potential placement for pod on node %s, preempting %d victims", room.Node.Name, len(victims))
			if err := p.preempt(ctx, pod, room.Node.Name, victims); err != nil {
				return false, err
			}
		}
	}
	nominate := ""
	if curable {
		nominate = room.Node.Name
	}
	total, err := p.nodes.List(labels.Everything())
	if err != nil {
		return false, err
	}
	return curable, p.report(ctx, pod, fit.Unschedulable(len(total), room.Node.Name, why, none), nominate)
}
