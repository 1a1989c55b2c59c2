package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

// facts are a cluster's objects at nearly one moment.
type facts struct {
	now        time.Time
	daemonSets []*appsv1.DaemonSet
	nodes      []*corev1.Node
	pods       []*corev1.Pod
	revisions  []*appsv1.ControllerRevision
	defaults   map[string]map[string]string // annotations of the namespaces that have DaemonSets
	missing    []string                     // what could not be read, and why
}

// gather reads a namespace, or all of them if it is empty. Without DaemonSets,
// nodes and pods there is no answer; without revisions there is less of one.
func gather(ctx context.Context, client kubernetes.Interface, namespace string) (*facts, error) {
	f := &facts{now: time.Now()}
	apps, core := client.AppsV1(), client.CoreV1()
	for _, kind := range []struct {
		name     string
		optional bool
		list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
		add      func(runtime.Object)
	}{
		{name: "DaemonSets", list: page(apps.DaemonSets(namespace).List), add: func(o runtime.Object) { f.daemonSets = append(f.daemonSets, o.(*appsv1.DaemonSet)) }},
		{name: "nodes", list: page(core.Nodes().List), add: func(o runtime.Object) { f.nodes = append(f.nodes, o.(*corev1.Node)) }},
		{name: "pods", list: page(core.Pods(namespace).List), add: func(o runtime.Object) { f.pods = append(f.pods, o.(*corev1.Pod)) }},
		{name: "ControllerRevisions", optional: true, list: page(apps.ControllerRevisions(namespace).List), add: func(o runtime.Object) { f.revisions = append(f.revisions, o.(*appsv1.ControllerRevision)) }},
	} {
		err := pager.New(kind.list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error { kind.add(o); return nil })
		if kind.optional && apierrors.IsForbidden(err) {
			f.missing = append(f.missing, fmt.Sprintf("%s may not be listed, so whether a pod is up to date is not known: %v", kind.name, err))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.name, err)
		}
	}
	return f, f.readDefaults(ctx, client)
}

// readDefaults reads the namespaces of the DaemonSets, for the settings there.
func (f *facts) readDefaults(ctx context.Context, client kubernetes.Interface) error {
	f.defaults = map[string]map[string]string{}
	for _, ds := range f.daemonSets {
		if _, known := f.defaults[ds.Namespace]; known {
			continue
		}
		ns, err := client.CoreV1().Namespaces().Get(ctx, ds.Namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			f.missing = append(f.missing, fmt.Sprintf("namespace %s may not be read, so settings on it are not known: %v", ds.Namespace, err))
			f.defaults[ds.Namespace] = nil
		case apierrors.IsNotFound(err):
			f.defaults[ds.Namespace] = nil // it went in between
		case err != nil:
			return fmt.Errorf("read namespace %s: %w", ds.Namespace, err)
		default:
			f.defaults[ds.Namespace] = ns.Annotations
		}
	}
	return nil
}

// page makes a typed list function one that the pager can call.
func page[T runtime.Object](list func(context.Context, metav1.ListOptions) (T, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// answer is what core makes of one DaemonSet.
type answer struct {
	set  *appsv1.DaemonSet
	plan daemonset.Plan
}

// answers are those for the DaemonSets that match, by namespace and name.
func (f *facts) answers(match func(*appsv1.DaemonSet) bool) []answer {
	pods, revisions := byOwner(f.pods), byOwner(f.revisions)
	var out []answer
	for _, ds := range f.daemonSets {
		if !match(ds) {
			continue
		}
		orphans := owner{namespace: ds.Namespace}
		own := owner{ds.Namespace, ds.UID}
		out = append(out, answer{ds, daemonset.Decide(daemonset.Input{
			Now: f.now, DaemonSet: ds, Nodes: f.nodes,
			Pods:      slices.Concat(pods[own], pods[orphans]),
			Revisions: slices.Concat(revisions[own], revisions[orphans]),
			Defaults:  f.defaults[ds.Namespace],
		})})
	}
	slices.SortFunc(out, func(a, b answer) int {
		return cmp.Or(cmp.Compare(a.set.Namespace, b.set.Namespace), cmp.Compare(a.set.Name, b.set.Name))
	})
	return out
}

// owner is a controller; without a UID, nobody.
type owner struct {
	namespace string
	uid       types.UID
}

func byOwner[T metav1.Object](objects []T) map[owner][]T {
	out := map[owner][]T{}
	for _, o := range objects {
		key := owner{namespace: o.GetNamespace()}
		if ref := metav1.GetControllerOf(o); ref != nil {
			key.uid = ref.UID
		}
		out[key] = append(out[key], o)
	}
	return out
}
