package simnode

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const byNode = "node"

// watch starts the two watches that all nodes share and waits until they are
// filled. The function it returns waits for their end.
func (f *Fleet) watch(ctx context.Context) (stopped func(), err error) {
	f.pods = coreinformers.NewFilteredPodInformer(f.cfg.Client, metav1.NamespaceAll, 0, cache.Indexers{byNode: f.indexByNode},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		})
	f.objects = coreinformers.NewFilteredNodeInformer(f.cfg.Client, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = Label + "=true" })
	wake := func(obj any) {
		if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			f.queue.Add(key)
		}
	}
	if err := f.pods.SetTransform(f.slimPod); err != nil {
		return nil, err
	}
	if err := f.objects.SetTransform(slimNode); err != nil {
		return nil, err
	}
	if _, err := f.pods.AddEventHandler(cache.FilteringResourceEventHandler{FilterFunc: f.ours,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, now any) { wake(now) }, DeleteFunc: wake}}); err != nil {
		return nil, err
	}
	if _, err := f.objects.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) { f.nodeChanged(nil, now) }, UpdateFunc: f.nodeChanged, DeleteFunc: f.nodeGone}); err != nil {
		return nil, err
	}
	done := make(chan struct{}, 2)
	for _, i := range []cache.SharedIndexInformer{f.pods, f.objects} {
		go func() { i.RunWithContext(ctx); done <- struct{}{} }()
	}
	cache.WaitForCacheSync(ctx.Done(), f.pods.HasSynced, f.objects.HasSynced)
	return func() { <-done; <-done }, nil
}

// adopt reserves the addresses of the pods that were here before, and notices the
// nodes that went between their registration and the watch.
func (f *Fleet) adopt() {
	for _, n := range f.order {
		if _, found, _ := f.objects.GetStore().GetByKey(n.spec.Name); !found {
			f.leave(n)
		}
	}
	for _, obj := range f.pods.GetStore().List() {
		if p := obj.(*corev1.Pod); f.ours(p) {
			f.lifeOf(cache.MetaObjectToName(p), p)
		}
	}
}

// ours says whether a pod is on one of these nodes.
func (f *Fleet) ours(obj any) bool {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	p, ok := obj.(*corev1.Pod)
	return ok && f.nodes[p.Spec.NodeName] != nil
}

func (f *Fleet) indexByNode(obj any) ([]string, error) {
	if p, ok := obj.(*corev1.Pod); ok && f.ours(p) {
		return []string{p.Spec.NodeName}, nil
	}
	return nil, nil
}

func (f *Fleet) wakePodsOf(name string) {
	keys, err := f.pods.GetIndexer().IndexKeys(byNode, name)
	if err != nil {
		return
	}
	for _, k := range keys {
		if name, err := cache.ParseObjectName(k); err == nil {
			f.queue.Add(name)
		}
	}
}

// nodeChanged answers what others wrote on a Node: the lifecycle controller calls
// a node that was silent Unknown, until the node says otherwise; and a label may
// decide how a pod behaves.
func (f *Fleet) nodeChanged(old, now any) {
	o, ok := now.(*corev1.Node)
	if !ok {
		return
	}
	n := f.nodes[o.Name]
	if n == nil {
		return
	}
	f.mu.Lock()
	other := n.uid != o.UID
	lost := !n.off && !n.gone && !readyNode(o)
	f.mu.Unlock()
	switch {
	case other:
		f.leave(n)
	case lost:
		f.repost(n)
	}
	if before, ok := old.(*corev1.Node); ok && !maps.Equal(before.Labels, o.Labels) {
		f.wakePodsOf(o.Name)
	}
}

func (f *Fleet) nodeGone(obj any) {
	if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		if n := f.nodes[key.Name]; n != nil {
			f.leave(n)
		}
	}
}

// leave ends a node whose object was deleted: it is not created again.
func (f *Fleet) leave(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n.gone = true
}

// slimPod keeps what a simulated kubelet reads, and of pods elsewhere the name.
func (f *Fleet) slimPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion}}
	n := f.nodes[p.Spec.NodeName]
	if n == nil {
		return out, nil
	}
	out.Generation, out.DeletionTimestamp, out.DeletionGracePeriodSeconds = p.Generation, p.DeletionTimestamp, p.DeletionGracePeriodSeconds
	if v, ok := p.Annotations[Annotation]; ok {
		out.Annotations = map[string]string{Annotation: v}
	}
	out.Spec = corev1.PodSpec{NodeName: n.spec.Name, HostNetwork: p.Spec.HostNetwork, ReadinessGates: p.Spec.ReadinessGates,
		Containers: slimContainers(p.Spec.Containers), InitContainers: slimContainers(p.Spec.InitContainers)}
	out.Status = corev1.PodStatus{Phase: p.Status.Phase, Conditions: p.Status.Conditions, StartTime: p.Status.StartTime,
		HostIP: p.Status.HostIP, PodIP: p.Status.PodIP, ContainerStatuses: slimStatuses(p.Status.ContainerStatuses)}
	return out, nil
}

func slimContainers(in []corev1.Container) []corev1.Container {
	if len(in) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(in))
	for i, c := range in {
		out[i] = corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy}
	}
	return out
}

func slimStatuses(in []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(in) == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, len(in))
	for i, c := range in {
		out[i] = corev1.ContainerStatus{Name: c.Name, RestartCount: c.RestartCount, State: c.State, LastTerminationState: c.LastTerminationState}
	}
	return out
}

// slimNode keeps a Node's labels and whether it is ready.
func slimNode(obj any) (any, error) {
	o, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels}}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out, nil
}

func readyNode(o *corev1.Node) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
