package upstream

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// drawCollision makes a new template whose revision's name is taken already.
func drawCollision(t *rapid.T) event {
	n, owner := rapid.IntRange(0, 99).Draw(t, "number"), rapid.SampledFrom([]string{"nobody", "nobody, but selected", "another"}).Draw(t, "owner")
	return happen(func(w *world) { w.collide(n, owner) }, "image c%d, with the name of its revision taken by a revision that belongs to %s", n, owner)
}

func (w *world) collide(n int, owner string) {
	ds := w.daemonSet()
	if ds == nil {
		return
	}
	image := fmt.Sprintf("c%d", n)
	t := ds.Spec.Template.DeepCopy()
	t.Spec.Containers[0].Image = image
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-" + controller.ComputeHash(t, ds.Status.CollisionCount)},
		Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"spec":{"containers":[{"image":"other","name":"agent"}]}}}}`)}}
	switch owner {
	case "nobody, but selected":
		if *ds.Spec.RevisionHistoryLimit == 10 { // with a lower one it may be gone before it collides
			r.Labels = appLabels
		}
	case "another":
		r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "other", UID: "other", Controller: ptr.To(true)}}
	}
	w.api.create(revisions, r) // it may be there
	w.setImage(image)
}

// drawRecreation deletes the DaemonSet and makes it anew.
func drawRecreation(t *rapid.T) event {
	orphan, image := rapid.Bool().Draw(t, "orphan"), rapid.SampledFrom([]string{"", "v1", "v4"}).Draw(t, "image")
	e := event{text: fmt.Sprintf("deleted and made again, orphaning: %v, with image %q", orphan, image)}
	e.do = []func(*world){func(w *world) { w.remove(orphan) }, func(w *world) { w.restore(image) }}
	return e
}

func (w *world) remove(orphan bool) {
	ds := w.daemonSet()
	if orphan {
		w.orphan(ds)
	}
	w.removed = ds
	w.api.remove(daemonSets, ds)
}

func (w *world) restore(image string) {
	next := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: w.removed.Annotations}, Spec: w.removed.Spec}
	if image != "" {
		next.Spec.Template.Spec.Containers[0].Image = image
	}
	must(w.api.create(daemonSets, next))
}

// orphan is what garbage collection does for --cascade=orphan before the
// DaemonSet goes.
func (w *world) orphan(ds *appsv1.DaemonSet) {
	at := now()
	w.api.change(daemonSets, ds, func(o object) {
		o.SetDeletionTimestamp(&at)
		o.SetFinalizers([]string{metav1.FinalizerOrphanDependents})
	})
	for _, p := range w.pods() {
		w.changePod(p, func(p *corev1.Pod) { disown(p, ds) })
	}
	for _, r := range w.revisions() {
		w.api.change(revisions, r, func(o object) { disown(o, ds) })
	}
}

// sweep is garbage collection of revisions.
func (w *world) sweep() {
	ds := w.daemonSet()
	for _, r := range w.revisions() {
		if abandoned(r, ds) {
			w.api.remove(revisions, r)
		}
	}
}

// abandoned says that an object's DaemonSet is gone.
func abandoned(o metav1.Object, ds *appsv1.DaemonSet) bool {
	ref := metav1.GetControllerOf(o)
	return ref != nil && ref.Kind == "DaemonSet" && (ds == nil || ref.UID != ds.UID)
}

func disown(o metav1.Object, ds *appsv1.DaemonSet) {
	if metav1.IsControlledBy(o, ds) {
		o.SetOwnerReferences(nil)
	}
}
