package daemonset

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/dump"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

const hashLabel = appsv1.ControllerRevisionHashLabelKey

// stateAnnotations are Rollcall's own; they are never taken over from a user's
// object, so that nobody can forge them.
const stateAnnotations = "state.rollcall.dev/"

// templateData is the template as a revision stores it: a patch that replaces it,
// byte for byte as upstream writes it.
func templateData(ds *appsv1.DaemonSet) ([]byte, error) {
	raw, err := json.Marshal(ds.Spec.Template)
	if err != nil {
		return nil, err
	}
	template := map[string]any{}
	if err := json.Unmarshal(raw, &template); err != nil {
		return nil, err
	}
	template["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
}

// templateHash is the hash upstream gives a template: FNV-32a over its dump and
// the collision count.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	h.Write([]byte(dump.ForHash(*template)))
	if collisions != nil {
		var count [8]byte
		binary.LittleEndian.PutUint32(count[:], uint32(*collisions))
		h.Write(count[:])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// history finds or makes the revision of the current template. It returns false
// when its name is taken by another template: then only the collision count moves.
func (d *decision) history() bool {
	data, err := templateData(d.in.DaemonSet)
	if err != nil {
		d.plan.Warning = &fit.Reason{Code: fit.RevisionChange, Message: "the template cannot be stored: " + err.Error()}
		return false
	}
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
		return d.createRevision(data, last+1)
	}
	d.current = same[len(same)-1]
	if d.current.Revision <= last {
		d.current = d.current.DeepCopy()
		d.current.Revision = last + 1
		d.revise(UpdateRevision, d.current, fit.RevisionChange, "its template is wanted again")
	}
	d.hash = d.current.Labels[hashLabel]
	for _, r := range same[:len(same)-1] {
		d.relabel(r.Labels[hashLabel])
		d.revise(DeleteRevision, r, fit.RevisionChange, "another revision holds the same template")
	}
	return true
}

// relabel moves the pods of a doubled revision to the one that is kept, and only
// those: pods of an older template stay old.
func (d *decision) relabel(from string) {
	for i, p := range d.pods {
		if p.Labels[hashLabel] == from && from != d.hash {
			p = p.DeepCopy()
			p.Labels[hashLabel] = d.hash
			d.pods[i] = p
			d.act(LabelPod, nil, p, fit.RevisionChange, "its revision is kept under another name")
		}
	}
}

func (d *decision) revise(verb Verb, r *appsv1.ControllerRevision, code fit.Code, message string) {
	d.plan.Actions = append(d.plan.Actions, Action{Verb: verb, Revision: r, Reason: fit.Reason{Code: code, Message: message}})
}

// claimRevisions returns the DaemonSet's revisions, lowest number first, each
// with a hash label.
func (d *decision) claimRevisions() []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	revisions := slices.Clone(d.in.Revisions)
	slices.SortFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
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
			r = r.DeepCopy()
			r.Labels = maps.Clone(r.Labels)
			if r.Labels == nil {
				r.Labels = map[string]string{}
			}
			r.Labels[hashLabel] = r.Name
			d.revise(UpdateRevision, r, fit.RevisionChange, "it had no hash label")
		}
		out = append(out, r)
	}
	return out
}

func (d *decision) createRevision(data []byte, number int64) bool {
	ds := d.in.DaemonSet
	d.hash = templateHash(&ds.Spec.Template, ds.Status.CollisionCount)
	name := ds.Name + "-" + d.hash
	for _, r := range d.in.Revisions {
		if r.Name == name {
			count := int32(1)
			if c := ds.Status.CollisionCount; c != nil {
				count = *c + 1
			}
			d.plan.Status.CollisionCount = &count
			d.revise(BumpCollision, r, fit.NameCollision, "another template has the same hash")
			return false
		}
	}
	l := maps.Clone(ds.Spec.Template.Labels)
	l[hashLabel] = d.hash
	annotations := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(ds.Annotations)) {
		if !strings.HasPrefix(k, stateAnnotations) {
			annotations[k] = ds.Annotations[k]
		}
	}
	d.current = &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: name, Labels: l, Annotations: annotations, OwnerReferences: owner(ds)},
		Data:       runtime.RawExtension{Raw: data},
		Revision:   number,
	}
	d.revise(CreateRevision, d.current, fit.RevisionChange, "the template is new")
	return true
}

func owner(ds *appsv1.DaemonSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
}

// cleanHistory removes the oldest revisions beyond the limit, but none that a pod
// still shows.
func (d *decision) cleanHistory() {
	limit := 10
	if l := d.in.DaemonSet.Spec.RevisionHistoryLimit; l != nil {
		limit = int(*l)
	}
	live := map[string]bool{}
	for _, p := range d.pods {
		live[p.Labels[hashLabel]] = true
	}
	excess := len(d.old) - limit
	for _, r := range d.old {
		if excess <= 0 {
			return
		}
		if !live[r.Labels[hashLabel]] {
			d.revise(DeleteRevision, r, fit.HistoryLimit, "more old revisions than revisionHistoryLimit")
			excess--
		}
	}
}
