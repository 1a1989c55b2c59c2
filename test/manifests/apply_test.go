package manifests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// cluster is a running Rollcall, as these tests use it.
type cluster struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newCluster(t *testing.T, cfg *rest.Config) *cluster {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{client: client, dynamic: dyn,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))}
}

// applied is what one file left in the cluster.
type applied struct {
	created    []*unstructured.Unstructured
	daemonSets []*unstructured.Unstructured
	refused    []string
}

// order of creation: what others need comes first, the rest as in the file.
var order = []string{"Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount"}

func rank(o *unstructured.Unstructured) int {
	if i := slices.Index(order, o.GetKind()); i >= 0 {
		return i
	}
	return len(order)
}

// apply creates the objects, with what the file takes for granted.
func (c *cluster) apply(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured) applied {
	t.Helper()
	var a applied
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		if o.GetKind() == "APIService" {
			t.Logf("left out: APIService %s, whose backend is remote", o.GetName())
			return true
		}
		return false
	})
	ownKinds := map[string]bool{} // kinds that the file defines itself
	for _, o := range objects {
		if kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind"); o.GetKind() == "CustomResourceDefinition" {
			ownKinds[kind] = true
		}
	}
	for _, o := range objects {
		if err := c.place(o, ownKinds); err != nil {
			t.Logf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	objects = append(forgotten(t, objects), objects...)
	slices.SortStableFunc(objects, func(x, y *unstructured.Unstructured) int { return rank(x) - rank(y) })
	for _, o := range objects {
		got, err := c.create(ctx, o, ownKinds)
		switch {
		case apierrors.IsAlreadyExists(err) && o.GetKind() != "DaemonSet":
			if o.GetKind() != "Namespace" {
				t.Logf("there already: %s %s", o.GetKind(), o.GetName())
			}
		case err != nil:
			a.refused = append(a.refused, o.GetKind()+" "+o.GetName())
			t.Logf("refused: %s %s: %v", o.GetKind(), o.GetName(), err)
			if o.GetKind() == "DaemonSet" {
				t.Errorf("the DaemonSet %s was refused: %v", o.GetName(), err)
			}
		default:
			a.created = append(a.created, got)
			if got.GetKind() == "DaemonSet" {
				a.daemonSets = append(a.daemonSets, got)
			}
		}
	}
	return a
}

// place gives a namespaced object that names no namespace the default one.
func (c *cluster) place(o *unstructured.Unstructured, ownKinds map[string]bool) error {
	if o.GetNamespace() != "" || ownKinds[o.GetKind()] {
		return nil
	}
	m, err := c.mapping(o)
	if err != nil {
		return err
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return nil
}

func (c *cluster) mapping(o *unstructured.Unstructured) (*meta.RESTMapping, error) {
	gvk := o.GroupVersionKind()
	return c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// resource is where the object lives. A kind that the same file defines may take
// a moment to be served.
func (c *cluster) resource(ctx context.Context, o *unstructured.Unstructured, ownKind bool) (dynamic.ResourceInterface, error) {
	m, err := c.mapping(o)
	if err != nil && ownKind {
		err = poll(ctx, 20*time.Second, func(context.Context) error {
			c.mapper.Reset()
			m, err = c.mapping(o)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		return c.dynamic.Resource(m.Resource), nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return c.dynamic.Resource(m.Resource).Namespace(o.GetNamespace()), nil
}

func (c *cluster) create(ctx context.Context, o *unstructured.Unstructured, ownKinds map[string]bool) (*unstructured.Unstructured, error) {
	r, err := c.resource(ctx, o, ownKinds[o.GetKind()])
	if err != nil {
		return nil, err
	}
	got, err := r.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) && ownKinds[o.GetKind()] { // known by name, not served yet
		err = poll(ctx, 20*time.Second, func(ctx context.Context) error {
			got, err = r.Create(ctx, o, metav1.CreateOptions{})
			return err
		})
	}
	return got, err
}

// forgotten are the namespaces, service accounts and priority classes that the
// objects use and do not bring.
func forgotten(t *testing.T, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	type id struct{ kind, namespace, name string }
	have := map[id]bool{
		{"Namespace", "", "default"}: true, {"Namespace", "", "kube-system"}: true,
		{"PriorityClass", "", "system-node-critical"}: true, {"PriorityClass", "", "system-cluster-critical"}: true,
	}
	for _, o := range objects {
		have[id{o.GetKind(), o.GetNamespace(), o.GetName()}] = true
	}
	var out []*unstructured.Unstructured
	need := func(want id, content map[string]any) {
		if want.name == "" || have[want] {
			return
		}
		have[want] = true
		o := &unstructured.Unstructured{Object: content}
		o.SetKind(want.kind)
		o.SetName(want.name)
		o.SetNamespace(want.namespace)
		out = append(out, o)
		t.Logf("forgotten by the file, created: %s %s", want.kind, want.name)
	}
	for _, o := range objects {
		need(id{kind: "Namespace", name: o.GetNamespace()}, map[string]any{"apiVersion": "v1",
			"metadata": map[string]any{"labels": map[string]any{"pod-security.kubernetes.io/enforce": "privileged"}}})
		pod, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		if err != nil || !found {
			continue
		}
		account, _ := pod["serviceAccountName"].(string)
		if account == "" {
			account, _ = pod["serviceAccount"].(string) // the deprecated name
		}
		if account != "default" {
			need(id{"ServiceAccount", o.GetNamespace(), account}, map[string]any{"apiVersion": "v1"})
		}
		class, _ := pod["priorityClassName"].(string)
		need(id{kind: "PriorityClass", name: class}, map[string]any{"apiVersion": "scheduling.k8s.io/v1", "value": int64(1000)})
	}
	return out
}

// remove deletes what a file left, and waits until no pod is left. Namespaces
// stay for the files that follow.
func (c *cluster) remove(ctx context.Context, t *testing.T, a applied) error {
	t.Helper()
	background := metav1.DeletePropagationBackground
	var errs []error
	for _, o := range slices.Backward(a.created) {
		if o.GetKind() == "Namespace" {
			continue
		}
		r, err := c.resource(ctx, o, false)
		if err == nil {
			err = r.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err))
		}
	}
	for _, o := range a.created {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		// One goes only after its objects. That is upstream's work and can take
		// long; the files that follow can do with what is left.
		if err := c.gone(ctx, o); err != nil {
			t.Logf("clean up, going on: %v", err)
		}
	}
	errs = append(errs, poll(ctx, 90*time.Second, func(ctx context.Context) error {
		pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods are left, among them %s/%s", len(pods.Items), pods.Items[0].Namespace, pods.Items[0].Name)
		}
		return err
	}))
	return errors.Join(errs...)
}

func (c *cluster) gone(ctx context.Context, o *unstructured.Unstructured) error {
	r, err := c.resource(ctx, o, false)
	if err != nil {
		return err
	}
	return poll(ctx, 10*time.Second, func(ctx context.Context) error {
		_, err := r.Get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return fmt.Errorf("%s %s is still there", o.GetKind(), o.GetName())
		}
		return err
	})
}
