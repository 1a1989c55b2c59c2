package engine

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	appsv1 "k8s.io/api/apps/v1"
)

// watch wakes a DaemonSet's key for each event that may concern it. Events carry
// no meaning beyond that.
func (e *Engine) watch() error {
	owned := cache.ResourceEventHandlerFuncs{
		AddFunc:    e.wakeOwner,
		UpdateFunc: func(old, now any) { e.wakeOwner(old); e.wakeOwner(now) },
		DeleteFunc: func(obj any) { e.noteGone(obj); e.wakeOwner(obj) },
	}
	handlers := []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{e.caches.dsInformer, cache.ResourceEventHandlerFuncs{
			AddFunc: e.wake, UpdateFunc: func(_, now any) { e.wake(now) }, DeleteFunc: e.wake}},
		{e.caches.podInformer, owned},
		{e.caches.revisionInformer, owned},
		{e.caches.nodeInformer, cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { e.wakeAll() }, DeleteFunc: func(any) { e.wakeAll() },
			UpdateFunc: func(old, now any) {
				if nodeMatters(old.(*corev1.Node), now.(*corev1.Node)) {
					e.wakeAll()
				}
			}}},
		{e.caches.namespaceInformer, cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
			was, ns := old.(*corev1.Namespace), now.(*corev1.Namespace)
			if !maps.Equal(was.Annotations, ns.Annotations) || !maps.Equal(was.Labels, ns.Labels) { // settings, Pod Security levels
				e.wakeNamespace(ns.Name)
			}
		}}},
	}
	for _, h := range handlers {
		if _, err := h.informer.AddEventHandler(h.handler); err != nil {
			return err
		}
	}
	return nil
}

// nodeMatters leaves out the heartbeats: only what core looks at wakes.
func nodeMatters(old, now *corev1.Node) bool {
	return !maps.Equal(old.Labels, now.Labels) || !equality.Semantic.DeepEqual(old.Spec.Taints, now.Spec.Taints) ||
		readiness(old) != readiness(now) || (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) || old.UID != now.UID
}

func readiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func (e *Engine) wake(obj any) {
	if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		e.queue.Add(key)
	}
}

func (e *Engine) wakeAll() {
	all, err := e.caches.daemonSets.List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "list the DaemonSets")
		return
	}
	for _, ds := range all {
		e.queue.Add(nameOf(ds))
	}
}

// wakeNamespace wakes the DaemonSets of a namespace.
func (e *Engine) wakeNamespace(name string) {
	sets, err := e.caches.daemonSets.DaemonSets(name).List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "list the DaemonSets", "namespace", name)
		return
	}
	for _, ds := range sets {
		e.queue.Add(nameOf(ds))
	}
}

// wakeOwner wakes the DaemonSet that controls the object, or, for one that
// nobody controls, those of its namespace that might adopt it.
func (e *Engine) wakeOwner(obj any) {
	o := object(obj)
	if o == nil {
		return
	}
	if ref := metav1.GetControllerOf(o); ref != nil {
		if ref.Kind == "DaemonSet" {
			e.queue.Add(cache.ObjectName{Namespace: o.GetNamespace(), Name: ref.Name})
		}
		return
	}
	sets, err := e.caches.daemonSets.DaemonSets(o.GetNamespace()).List(labels.Everything())
	if err != nil {
		return
	}
	for _, ds := range sets {
		if selects(ds, o.GetLabels()) {
			e.queue.Add(nameOf(ds))
		}
	}
}

func selects(ds *appsv1.DaemonSet, l map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(l))
}

// noteGone ends the wait for an object that came and went before a pass saw it.
func (e *Engine) noteGone(obj any) {
	o := object(obj)
	if o == nil {
		return
	}
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return
	}
	e.mu.Lock()
	m := e.state[cache.ObjectName{Namespace: o.GetNamespace(), Name: ref.Name}]
	e.mu.Unlock()
	if m != nil {
		m.gone(o.GetUID())
	}
}

func object(obj any) metav1.Object {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	o, _ := obj.(metav1.Object)
	return o
}
