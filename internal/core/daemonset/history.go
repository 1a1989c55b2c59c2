package daemonset

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// stateAnnotations are Rollcall's own; they are never taken over from a user's
// object, so that nobody can forge them.
const stateAnnotations = "state.rollcall.dev/"

// stableAnnotation says since when a revision is known to have run on every node.
const stableAnnotation = stateAnnotations + "stable"

// history finds or makes the revision of the current template. It refuses one
// that cannot be stored, or whose pods would be released as soon as they are made.
func (d *decision) history() *fit.Reason {
	data, err := templateData(d.in.DaemonSet)
	if err != nil {
		return &fit.Reason{Code: fit.TemplateInvalid, Message: "the template cannot be stored as a revision: " + err.Error()}
	}
	d.findRevision(data)
	if !d.selector.Matches(labels.Set(d.podLabels())) {
		return &fit.Reason{Code: fit.SelectorInvalid, Message: "the selector does not match the labels that pods get beside the template's: " + hashLabel + " and " + generationLabel}
	}
	return nil
}

func (d *decision) findRevision(data []byte) {
	var same []*appsv1.ControllerRevision
	last := int64(0)
	for _, r := range d.claimRevisions() {
		if bytes.Equal(r.Data.Raw, data) {
			same = append(same, r)
			continue
		}
		d.old = append(d.old, r)
		last = max(last, r.Revision)
	}
	if len(same) == 0 {
		d.createRevision(data, last+1)
		return
	}
	current := same[len(same)-1]
	d.current, d.hash = current, current.Labels[hashLabel]
	if current.Revision <= last {
		d.change(current, fit.TemplateAgain, "its template is wanted again").Revision = last + 1
	}
	for _, r := range same[:len(same)-1] {
		d.relabel(r.Labels[hashLabel])
		d.deleteRevision(r, fit.SameTemplate, "another revision holds the same template")
	}
}

// change returns the object to write for a revision: one write for all changes.
// A revision that is adopted in the same plan has a newer version by then.
func (d *decision) change(r *appsv1.ControllerRevision, code fit.Code, message string) *appsv1.ControllerRevision {
	for _, a := range d.plan.Actions {
		if a.Verb == UpdateRevision && a.Revision.Name == r.Name {
			return a.Revision
		}
	}
	next := r.DeepCopy()
	if metav1.GetControllerOf(r) == nil {
		next.OwnerReferences = append(next.OwnerReferences, owner(d.in.DaemonSet)...)
		next.ResourceVersion = ""
	}
	d.revise(UpdateRevision, next, code, message)
	return next
}

// relabel moves the pods of a doubled revision to the one that is kept, and only
// those: pods of an older template stay old.
func (d *decision) relabel(from string) {
	for i, p := range d.pods {
		if p.Labels[hashLabel] == from && from != d.hash {
			p = p.DeepCopy()
			p.Labels = withHash(p.Labels, d.hash)
			d.pods[i] = p
			d.act(LabelPod, nil, p, fit.SameTemplate, "its revision is kept under another name")
		}
	}
}

func (d *decision) revise(verb Verb, r *appsv1.ControllerRevision, code fit.Code, message string) {
	d.plan.Actions = append(d.plan.Actions, Action{Verb: verb, Revision: r, Reason: fit.Reason{Code: code, Object: "controllerrevision/" + r.Name, Message: message}})
}

func (d *decision) deleteRevision(r *appsv1.ControllerRevision, code fit.Code, message string) {
	if r.DeletionTimestamp == nil {
		d.revise(DeleteRevision, r, code, message)
	}
}

// claimRevisions returns the DaemonSet's revisions, lowest number first, the
// oldest of the same number last, each with a hash label.
func (d *decision) claimRevisions() []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	revisions := slices.Clone(d.in.Revisions)
	slices.SortFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	for _, r := range revisions {
		matches := d.selector.Matches(labels.Set(r.Labels))
		switch ref := metav1.GetControllerOf(r); {
		case ref != nil && ref.UID != d.in.DaemonSet.UID:
			continue
		case ref != nil && !matches:
			d.revise(ReleaseRevision, r, fit.SelectorLeft, "its labels no longer match the selector")
			continue
		case ref == nil && (!matches || r.DeletionTimestamp != nil):
			continue
		case ref == nil:
			d.revise(AdoptRevision, r, fit.SelectorMatch, "its labels match the selector and nobody owns it")
		}
		if r.Labels[hashLabel] == "" {
			next := d.change(r, fit.NoHashLabel, "it had no hash label")
			next.Labels = withHash(next.Labels, r.Name)
			r = r.DeepCopy()
			r.Labels = withHash(r.Labels, r.Name)
		}
		out = append(out, r)
	}
	return out
}

// createRevision makes the revision of a new template. While its name is taken by
// another template, the collision count moves on and gives another one.
func (d *decision) createRevision(data []byte, number int64) {
	ds := d.in.DaemonSet
	count := ds.Status.CollisionCount
	for {
		d.hash = templateHash(&ds.Spec.Template, count)
		taken := d.revisionNamed(ds.Name + "-" + d.hash)
		if taken == nil {
			break
		}
		if bytes.Equal(taken.Data.Raw, data) {
			return // it holds this very template, under another owner that is going
		}
		next := int32(1)
		if count != nil {
			next = *count + 1
		}
		count = &next
		d.plan.Status.CollisionCount = count
		d.revise(BumpCollision, taken, fit.NameCollision, "another template has the same name")
	}
	annotations := maps.Clone(ds.Annotations)
	maps.DeleteFunc(annotations, func(k, _ string) bool { return strings.HasPrefix(k, stateAnnotations) })
	d.revise(CreateRevision, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: ds.Name + "-" + d.hash, Labels: withHash(ds.Spec.Template.Labels, d.hash), Annotations: annotations, OwnerReferences: owner(ds)},
		Data:       runtime.RawExtension{Raw: data},
		Revision:   number,
	}, fit.NewTemplate, "the template is new")
}

func (d *decision) revisionNamed(name string) *appsv1.ControllerRevision {
	i := slices.IndexFunc(d.in.Revisions, func(r *appsv1.ControllerRevision) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return d.in.Revisions[i]
}

// cleanHistory removes the oldest revisions beyond the limit, but none that a pod
// still shows, and not the last one that is known to work while the wanted one is not.
func (d *decision) cleanHistory() {
	limit := 10
	if l := d.in.DaemonSet.Spec.RevisionHistoryLimit; l != nil {
		limit = int(*l)
	}
	live := map[string]bool{}
	for _, p := range d.pods {
		live[p.Labels[hashLabel]] = true
	}
	if i := d.lastStable(); i >= 0 && !d.isStable() {
		live[d.old[i].Labels[hashLabel]] = true
	}
	excess := len(d.old) - limit
	for _, r := range d.old {
		if excess <= 0 {
			return
		}
		if !live[r.Labels[hashLabel]] {
			d.deleteRevision(r, fit.HistoryLimit, "more old revisions than revisionHistoryLimit")
			excess--
		}
	}
}

// lastStable is the index of the youngest old revision that is known to work, or -1.
func (d *decision) lastStable() int {
	for i := len(d.old) - 1; i >= 0; i-- {
		if d.old[i].Annotations[stableAnnotation] != "" {
			return i
		}
	}
	return -1
}

func (d *decision) isStable() bool {
	return d.marked || d.current != nil && d.current.Annotations[stableAnnotation] != ""
}

// markStable notes on the wanted revision that it has run on every node.
func (d *decision) markStable() {
	if d.isStable() {
		return
	}
	d.marked = true
	var next *appsv1.ControllerRevision
	if d.current != nil {
		next = d.change(d.current, fit.RevisionStable, "it has run on every node")
	} else {
		for _, a := range d.plan.Actions {
			if a.Verb == CreateRevision {
				next = a.Revision
			}
		}
	}
	if next == nil {
		return // another's revision holds the template
	}
	next.Annotations = maps.Clone(next.Annotations)
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[stableAnnotation] = d.in.Now.UTC().Format(time.RFC3339)
}
