package upstream

import (
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// write is one that a controller asked for.
type write struct {
	at       time.Time
	verb     string
	resource string
	name     string
	node     string
	err      error
}

func (w write) String() string {
	out := fmt.Sprintf("%s %s %s %s", w.at.Format("15:04:05.000"), w.verb, w.resource, w.name)
	if w.node != "" {
		out += " on " + w.node
	}
	if w.err != nil {
		out += ": " + w.err.Error()
	}
	return out
}

// client is client-go's fake with the world's API server behind it.
func (w *world) client() *fake.Clientset {
	c := &fake.Clientset{}
	c.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o, err := w.react(a)
		if o == nil {
			return true, nil, err
		}
		return true, o, err
	})
	c.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		from, err := strconv.ParseUint(a.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion, 10, 64)
		if err != nil {
			return true, nil, fmt.Errorf("watch from %w", err)
		}
		return true, w.api.watch(a.GetResource().Resource, from), nil
	})
	return c
}

func (w *world) react(action clienttesting.Action) (runtime.Object, error) {
	resource := action.GetResource().Resource
	if resource == "events" {
		if a, ok := action.(clienttesting.CreateActionImpl); ok {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, *a.GetObject().(*corev1.Event))
			return a.GetObject(), nil
		}
		return &corev1.Event{}, nil
	}
	if w.races() {
		return nil, apierrors.NewTooManyRequests("the controller goes round in circles", 1)
	}
	switch a := action.(type) {
	case clienttesting.ListActionImpl:
		all, version := w.api.list(resource)
		return listOf(resource, all, version), nil
	case clienttesting.GetActionImpl:
		return result(w.api.get(resource, a.GetNamespace(), a.GetName()))
	case clienttesting.CreateActionImpl:
		given := a.GetObject().(object)
		given.SetNamespace(a.GetNamespace()) // upstream leaves it to the path
		o, err := w.api.create(resource, given)
		if o == nil {
			o = given
		}
		w.note("create", resource, o, err)
		return result(o, err)
	case clienttesting.UpdateActionImpl:
		o := a.GetObject().(object)
		out, err := w.api.update(resource, o, a.GetSubresource() == "status")
		w.note("update "+a.GetSubresource(), resource, o, err)
		return result(out, err)
	case clienttesting.PatchActionImpl:
		out, err := w.api.patch(resource, a.GetNamespace(), a.GetName(), a.GetPatchType(), a.GetPatch())
		w.note("patch", resource, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: a.GetName() + " " + string(a.GetPatch())}}, err)
		return result(out, err)
	case clienttesting.DeleteActionImpl:
		o, _ := w.api.get(resource, a.GetNamespace(), a.GetName())
		if o == nil {
			o = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: a.GetName()}}
		}
		err := w.api.delete(resource, a.GetNamespace(), a.GetName(), a.DeleteOptions.Preconditions)
		w.note("delete", resource, o, err)
		return nil, err
	}
	return nil, fmt.Errorf("%s of %s is not expected", action.GetVerb(), resource)
}

// races says that a controller has written more at one moment than any work needs;
// without an answer that makes it wait, time in a bubble would stand still.
func (w *world) races() bool {
	const most = 1000
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.writes)
	w.raced = w.raced || n > most && w.writes[n-most].at.Equal(time.Now())
	return w.raced
}

// result keeps an absent object from becoming an interface that is not nil.
func result(o object, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (w *world) note(verb, resource string, o metav1.Object, err error) {
	line := write{at: time.Now(), verb: verb, resource: resource, name: o.GetName(), err: err}
	if p, ok := o.(*corev1.Pod); ok {
		line.node = target(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, line)
}

func listOf(resource string, all []object, version uint64) runtime.Object {
	at := metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	switch resource {
	case daemonSets:
		return &appsv1.DaemonSetList{ListMeta: at, Items: items[appsv1.DaemonSet](all)}
	case revisions:
		return &appsv1.ControllerRevisionList{ListMeta: at, Items: items[appsv1.ControllerRevision](all)}
	case pods:
		return &corev1.PodList{ListMeta: at, Items: items[corev1.Pod](all)}
	case namespaces:
		return &corev1.NamespaceList{ListMeta: at, Items: items[corev1.Namespace](all)}
	default:
		return &corev1.NodeList{ListMeta: at, Items: items[corev1.Node](all)}
	}
}

func items[T any](all []object) []T {
	out := make([]T, 0, len(all))
	for _, o := range all {
		out = append(out, *any(o).(*T))
	}
	return out
}

// watcher is one watch. Its buffer is far beyond what a step writes: the server
// never waits for a reader.
type watcher struct {
	server   *apiserver
	resource string
	events   chan watch.Event
}

func (s *apiserver) watch(resource string, from uint64) *watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watcher{server: s, resource: resource, events: make(chan watch.Event, 1<<13)}
	s.watchers[w] = true
	for _, c := range s.changes {
		if c.version > from {
			w.send(c)
		}
	}
	return w
}

func (w *watcher) send(c change) {
	if c.resource != w.resource {
		return
	}
	select {
	case w.events <- watch.Event{Type: c.event.Type, Object: clone(c.event.Object)}:
	default:
		panic("a watch is not read")
	}
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

func (w *watcher) Stop() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if w.server.watchers[w] {
		delete(w.server.watchers, w)
		close(w.events)
	}
}
