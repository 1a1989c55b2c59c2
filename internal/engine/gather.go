package engine

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

// byOwner indexes by the UID of the controlling owner; what nobody controls
// stands under its namespace.
const byOwner = "owner"

type caches struct {
	daemonSets                                              appslisters.DaemonSetLister
	nodes                                                   corelisters.NodeLister
	namespaces                                              corelisters.NamespaceLister
	dsInformer, podInformer, nodeInformer, revisionInformer cache.SharedIndexInformer
	namespaceInformer                                       cache.SharedIndexInformer
}

func newCaches(f informers.SharedInformerFactory) (caches, error) {
	c := caches{
		daemonSets: f.Apps().V1().DaemonSets().Lister(), nodes: f.Core().V1().Nodes().Lister(),
		dsInformer: f.Apps().V1().DaemonSets().Informer(), podInformer: f.Core().V1().Pods().Informer(),
		nodeInformer: f.Core().V1().Nodes().Informer(), revisionInformer: f.Apps().V1().ControllerRevisions().Informer(),
		namespaces: f.Core().V1().Namespaces().Lister(), namespaceInformer: f.Core().V1().Namespaces().Informer(),
	}
	index := cache.Indexers{byOwner: func(obj any) ([]string, error) {
		o, ok := obj.(metav1.Object)
		if !ok {
			return nil, nil
		}
		if ref := metav1.GetControllerOf(o); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return []string{orphans(o.GetNamespace())}, nil
	}}
	if err := c.podInformer.AddIndexers(index); err != nil {
		return caches{}, err
	}
	return c, c.revisionInformer.AddIndexers(index)
}

func orphans(namespace string) string { return "orphan in " + namespace }

// gather reads all facts about one DaemonSet from the caches; nil if it is gone.
func (e *Engine) gather(key cache.ObjectName, mem *memory) (*daemonset.Input, error) {
	ds, err := e.caches.daemonSets.DaemonSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, err := e.caches.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	pods, err := ownedOrOrphan[*corev1.Pod](e.caches.podInformer, ds)
	if err != nil {
		return nil, err
	}
	revisions, err := ownedOrOrphan[*appsv1.ControllerRevision](e.caches.revisionInformer, ds)
	if err != nil {
		return nil, err
	}
	foreign, err := e.foreignRevisions(ds)
	if err != nil {
		return nil, err
	}
	revisions = append(revisions, foreign...)
	in := &daemonset.Input{Now: time.Now(), DaemonSet: ds, Revisions: revisions, Nodes: nodes, Pods: pods, Places: mem.placesCopy()}
	if ns, err := e.caches.namespaces.Get(key.Namespace); err == nil {
		in.Defaults = ns.Annotations
	}
	return in, nil
}

func ownedOrOrphan[T any](inf cache.SharedIndexInformer, ds *appsv1.DaemonSet) ([]T, error) {
	var out []T
	for _, value := range []string{string(ds.UID), orphans(ds.Namespace)} {
		objs, err := inf.GetIndexer().ByIndex(byOwner, value)
		if err != nil {
			return nil, err
		}
		for _, o := range objs {
			out = append(out, o.(T))
		}
	}
	return out, nil
}

// foreignRevisions are those of other owners whose names the DaemonSet might need:
// a name that is taken moves the collision count.
func (e *Engine) foreignRevisions(ds *appsv1.DaemonSet) ([]*appsv1.ControllerRevision, error) {
	all, err := e.caches.revisionInformer.GetIndexer().ByIndex(cache.NamespaceIndex, ds.Namespace)
	if err != nil {
		return nil, err
	}
	var out []*appsv1.ControllerRevision
	for _, obj := range all {
		r := obj.(*appsv1.ControllerRevision)
		if ref := metav1.GetControllerOf(r); ref != nil && ref.UID != ds.UID && strings.HasPrefix(r.Name, ds.Name+"-") {
			out = append(out, r)
		}
	}
	return out, nil
}
