package upstream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
)

// The resources that the two controllers read and write.
const (
	daemonSets = "daemonsets"
	revisions  = "controllerrevisions"
	pods       = "pods"
	nodes      = "nodes"
	namespaces = "namespaces"
)

type object interface {
	runtime.Object
	metav1.Object
}

func clone[T runtime.Object](o T) T { return o.DeepCopyObject().(T) }

// apiserver keeps objects as an API server does, as far as a DaemonSet controller
// can tell: client-go's fake keeps no versions, UIDs, generations or graceful
// deletions. Every change is remembered, so that a watch misses none.
type apiserver struct {
	mu       sync.Mutex
	version  uint64
	made     int // objects ever created, for UIDs and names
	objects  map[string]map[string]object
	changes  []change
	watchers map[*watcher]bool
}

type change struct {
	resource string
	version  uint64
	event    watch.Event
}

func newAPIServer() *apiserver {
	return &apiserver{version: 1, objects: map[string]map[string]object{daemonSets: {}, revisions: {}, pods: {}, nodes: {}, namespaces: {}}, watchers: map[*watcher]bool{}}
}

// copy is another server that holds the same.
func (s *apiserver) copy() *apiserver {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newAPIServer()
	c.version, c.made = s.version, s.made
	for resource, all := range s.objects {
		for key, o := range all {
			c.objects[resource][key] = clone(o)
		}
	}
	return c
}

func group(resource string) schema.GroupResource {
	if resource == daemonSets || resource == revisions {
		return schema.GroupResource{Group: appsv1.GroupName, Resource: resource}
	}
	return schema.GroupResource{Resource: resource}
}

// put stores an object under a new version and tells the watchers.
func (s *apiserver) put(resource string, o object, kind watch.EventType) object {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	key := o.GetNamespace() + "/" + o.GetName()
	if s.objects[resource][key] = o; kind == watch.Deleted {
		delete(s.objects[resource], key)
	}
	c := change{resource: resource, version: s.version, event: watch.Event{Type: kind, Object: clone(o)}}
	s.changes = append(s.changes, c)
	for w := range s.watchers {
		w.send(c)
	}
	return clone(o)
}

func (s *apiserver) create(resource string, given object) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := clone(given)
	s.made++
	if o.GetName() == "" {
		o.SetName(fmt.Sprintf("%sx%04d", o.GetGenerateName(), s.made))
	}
	if s.objects[resource][o.GetNamespace()+"/"+o.GetName()] != nil {
		return nil, apierrors.NewAlreadyExists(group(resource), o.GetName())
	}
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.made)))
	o.SetCreationTimestamp(now())
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		o.Generation, o.Status = 1, appsv1.DaemonSetStatus{}
		setTemplateGeneration(o, 1)
	case *corev1.Pod:
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.PodPending
		}
	}
	return s.put(resource, o, watch.Added), nil
}

// now is the time as the API writes it: in seconds.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

func setTemplateGeneration(ds *appsv1.DaemonSet, n int64) {
	ds.Annotations = maps.Clone(ds.Annotations)
	if ds.Annotations == nil {
		ds.Annotations = map[string]string{}
	}
	ds.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

func (s *apiserver) get(resource, namespace, name string) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookup(resource, namespace, name)
}

func (s *apiserver) lookup(resource, namespace, name string) (object, error) {
	o := s.objects[resource][namespace+"/"+name]
	if o == nil {
		return nil, apierrors.NewNotFound(group(resource), name)
	}
	return clone(o), nil
}

// list returns every object of a resource, by name.
func (s *apiserver) list(resource string) ([]object, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []object
	for _, o := range s.objects[resource] {
		out = append(out, clone(o))
	}
	slices.SortFunc(out, func(a, b object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out, s.version
}

func (s *apiserver) update(resource string, given object, status bool) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replace(resource, clone(given), status)
}

func (s *apiserver) replace(resource string, next object, status bool) (object, error) {
	old, err := s.lookup(resource, next.GetNamespace(), next.GetName())
	if err != nil {
		return nil, err
	}
	if v := next.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(group(resource), next.GetName(), fmt.Errorf("the object has been modified"))
	}
	if next.GetUID() != old.GetUID() && next.GetUID() != "" {
		return nil, apierrors.NewConflict(group(resource), next.GetName(), fmt.Errorf("UID %s is not %s", next.GetUID(), old.GetUID()))
	}
	if next, err = admit(old, next, status); err != nil {
		return nil, err
	}
	next.SetUID(old.GetUID())
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	next.SetResourceVersion(old.GetResourceVersion())
	switch {
	case equality.Semantic.DeepEqual(old, next):
		return old, nil
	case next.GetDeletionTimestamp() != nil && resource != pods && len(next.GetFinalizers()) == 0:
		return s.put(resource, next, watch.Deleted), nil
	}
	return s.put(resource, next, watch.Modified), nil
}

// admit is what the API server makes of an update: status and spec are written
// apart, a changed template raises both generations, another change of the spec
// the one, and a revision's data never changes.
func admit(old, next object, status bool) (object, error) {
	switch next := next.(type) {
	case *appsv1.DaemonSet:
		old := old.(*appsv1.DaemonSet)
		if status {
			out := clone(old)
			out.Status = next.Status
			return out, nil
		}
		next.Status, next.Generation = old.Status, old.Generation
		generation, err := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		if err != nil {
			return nil, err
		}
		if !equality.Semantic.DeepEqual(old.Spec.Template, next.Spec.Template) {
			generation++
		}
		if !equality.Semantic.DeepEqual(old.Spec, next.Spec) {
			next.Generation++
		}
		setTemplateGeneration(next, generation)
		return next, nil
	case *appsv1.ControllerRevision:
		if string(next.Data.Raw) != string(old.(*appsv1.ControllerRevision).Data.Raw) {
			return nil, apierrors.NewBadRequest("data: field is immutable")
		}
	}
	return next, nil
}

func (s *apiserver) patch(resource, namespace, name string, kind types.PatchType, patch []byte) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.lookup(resource, namespace, name)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	if kind != types.StrategicMergePatchType && kind != types.MergePatchType {
		return nil, fmt.Errorf("no patch of type %s is expected", kind)
	}
	// A merge patch of labels reads the same in both types.
	after, err := strategicpatch.StrategicMergePatch(before, patch, old)
	if err != nil {
		return nil, err
	}
	next := empty(resource)
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	return s.replace(resource, next, false)
}

func empty(resource string) object {
	switch resource {
	case daemonSets:
		return &appsv1.DaemonSet{}
	case revisions:
		return &appsv1.ControllerRevision{}
	case pods:
		return &corev1.Pod{}
	case namespaces:
		return &corev1.Namespace{}
	default:
		return &corev1.Node{}
	}
}

// delete removes an object. A pod that a kubelet holds, and one with finalizers,
// is marked only.
func (s *apiserver) delete(resource, namespace, name string, precondition *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.lookup(resource, namespace, name)
	if err != nil {
		return err
	}
	if precondition != nil && precondition.UID != nil && *precondition.UID != o.GetUID() {
		return apierrors.NewConflict(group(resource), name, fmt.Errorf("UID %s is not %s", *precondition.UID, o.GetUID()))
	}
	p, isPod := o.(*corev1.Pod)
	held := isPod && p.Spec.NodeName != "" && !ended(p)
	switch {
	case o.GetDeletionTimestamp() != nil && (held || len(o.GetFinalizers()) > 0):
		return nil
	case held || len(o.GetFinalizers()) > 0:
		at := now()
		o.SetDeletionTimestamp(&at)
		s.put(resource, o, watch.Modified)
	default:
		s.put(resource, o, watch.Deleted)
	}
	return nil
}

// change is for those who need no API: kubelets, garbage collectors, the test.
func (s *apiserver) change(resource string, o object, f func(object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.lookup(resource, o.GetNamespace(), o.GetName())
	if err != nil {
		return
	}
	next := clone(old)
	if f(next); !equality.Semantic.DeepEqual(old, next) {
		s.put(resource, next, watch.Modified)
	}
}

// remove ends an object at once, whatever holds it.
func (s *apiserver) remove(resource string, o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, err := s.lookup(resource, o.GetNamespace(), o.GetName()); err == nil {
		s.put(resource, old, watch.Deleted)
	}
}
