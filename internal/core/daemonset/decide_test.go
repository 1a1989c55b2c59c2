package daemonset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// TestCreatedPod looks at the whole object that is to be written.
func TestCreatedPod(t *testing.T) {
	c := newCluster()
	c.addNode("a", nil)
	c.ds.Spec.Template.Annotations = map[string]string{"note": "x"}
	c.ds.Spec.Template.Finalizers = []string{"f/f"}
	plan := c.decide()
	p := plan.Actions[1].Pod
	ref := metav1.GetControllerOf(p)
	switch {
	case plan.Actions[0].Verb != CreateRevision || plan.Actions[1].Verb != CreatePod:
		t.Fatal(plan)
	case p.Namespace != "ns" || p.GenerateName != "" || p.Annotations["note"] != "x" || p.Finalizers[0] != "f/f":
		t.Errorf("metadata %+v", p.ObjectMeta)
	case p.Labels[hashLabel] != plan.Hash || p.Labels[generationLabel] != "1" || p.Labels["app"] != "agent":
		t.Errorf("labels %v", p.Labels)
	case ref == nil || ref.UID != c.ds.UID || ref.Kind != "DaemonSet" || ref.APIVersion != "apps/v1" || !*ref.BlockOwnerDeletion:
		t.Errorf("owner %+v", ref)
	case fit.TargetNode(p) != "a" || p.Spec.NodeName != "" || len(p.Spec.Tolerations) != 6:
		t.Errorf("spec %+v", p.Spec)
	case len(c.ds.Spec.Template.Labels) != 1:
		t.Errorf("the template was changed: %v", c.ds.Spec.Template.Labels)
	}
}

// TestOneWriteForARevision: what a revision lacks is mended in one write, after it
// is adopted, as a second one would meet a newer version.
func TestOneWriteForARevision(t *testing.T) {
	c := newCluster()
	data, err := templateData(c.ds)
	if err != nil {
		t.Fatal(err)
	}
	l := map[string]string{"app": "agent"}
	c.revisions = []*appsv1.ControllerRevision{
		{ObjectMeta: metav1.ObjectMeta{Name: "first", UID: "1", Labels: l, ResourceVersion: "7"}, Revision: 1, Data: runtime.RawExtension{Raw: data}},
		{ObjectMeta: metav1.ObjectMeta{Name: "second", UID: "2", Labels: map[string]string{"app": "agent", hashLabel: "h"}, OwnerReferences: owner(c.ds)}, Revision: 2},
	}
	plan := c.decide()
	if len(plan.Actions) != 2 || plan.Actions[0].Verb != AdoptRevision || plan.Actions[1].Verb != UpdateRevision {
		t.Fatal(plan)
	}
	r := plan.Actions[1].Revision
	if r.Revision != 3 || r.Labels[hashLabel] != "first" || metav1.GetControllerOf(r) == nil || r.ResourceVersion != "" || plan.Hash != "first" {
		t.Errorf("revision %+v, hash %s", r, plan.Hash)
	}
	if l[hashLabel] != "" {
		t.Error("the input was changed")
	}
}

func TestStatusIsStable(t *testing.T) {
	c := newCluster()
	c.addNode("a", nil)
	foreign := appsv1.DaemonSetCondition{Type: "StatusUpdate", Status: corev1.ConditionTrue, Reason: "E2E"}
	c.ds.Status.Conditions = []appsv1.DaemonSetCondition{foreign}
	c.settle(20 * time.Second)
	first := c.decide().Status
	if first.ObservedGeneration != 1 || len(first.Conditions) != 5 || first.Conditions[0] != foreign {
		t.Fatalf("status %+v", first)
	}
	c.now = c.now.Add(time.Hour)
	if again := c.decide().Status; !equality.Semantic.DeepEqual(first, again) {
		t.Errorf("status changes by itself:\n%+v\n%+v", first, again)
	}
}

// TestBackoffDoublesAndIsForgotten walks the whole backoff.
func TestBackoffDoublesAndIsForgotten(t *testing.T) {
	for _, c := range []struct {
		failures int32
		want     time.Duration
	}{{1, time.Second}, {2, 2 * time.Second}, {5, 16 * time.Second}, {10, 512 * time.Second}, {11, 15 * time.Minute}, {1000, 15 * time.Minute}} {
		s := &spot{place: Place{Failures: c.failures, LastFailure: time.Unix(0, 0)}}
		if got := s.backoffEnd().Sub(time.Unix(0, 0)); got != c.want {
			t.Errorf("after %d failures %s, want %s", c.failures, got, c.want)
		}
	}
	w := newCluster()
	w.addNode("a", nil)
	w.settle(20 * time.Second)
	w.change(w.pods[0].UID, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	for _, c := range []struct {
		idle time.Duration
		want int32
	}{{20 * time.Minute, 21}, {31 * time.Minute, 1}} {
		w.places = []Place{{Node: "a", Failures: 20, LastFailure: w.now.Add(-c.idle)}}
		if got := w.decide().Places[0].Failures; got != c.want {
			t.Errorf("%d failures remembered after %s, want %d", got, c.idle, c.want)
		}
	}
}

// TestNameOfAnotherIsNotTried: a released pod keeps its name.
func TestNameOfAnotherIsNotTried(t *testing.T) {
	c := newCluster()
	c.addNode("a", nil)
	name := c.decide().Actions[1].Pod.Name
	c.pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "other"}}}}
	plan := c.decide()
	if got := plan.Actions[1].Pod.Name; got == name || plan.Places[0].Salt != 1 {
		t.Errorf("%s, places %v", got, plan.Places)
	}
}

// TestTemplateWithoutLabels: a selector can ask that a label is not there.
func TestTemplateWithoutLabels(t *testing.T) {
	c := newCluster()
	c.addNode("a", nil)
	c.ds.Spec.Template.Labels = nil
	c.ds.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	data, err := templateData(c.ds)
	if err != nil {
		t.Fatal(err)
	}
	c.revisions = []*appsv1.ControllerRevision{{ObjectMeta: metav1.ObjectMeta{Name: "bare", UID: "1"}, Revision: 1, Data: runtime.RawExtension{Raw: data}}}
	plan := c.decide()
	if len(plan.Actions) != 3 || plan.Actions[1].Revision.Labels[hashLabel] != "bare" || plan.Actions[2].Pod.Labels[hashLabel] != "bare" {
		t.Fatal(plan)
	}
	c.revisions = nil
	if plan = c.decide(); len(plan.Actions) != 2 || plan.Actions[0].Revision.Labels[hashLabel] != plan.Hash {
		t.Fatal(plan)
	}
}

func TestSelectorThatMissesTheTemplate(t *testing.T) {
	c := newCluster()
	c.addNode("a", nil)
	for _, s := range []*metav1.LabelSelector{nil, {MatchLabels: map[string]string{"x": "y"}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: hashLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: generationLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}}} {
		c.ds.Spec.Selector = s
		if plan := c.decide(); len(plan.Actions) > 0 || plan.Warning == nil || plan.Warning.Code != fit.SelectorInvalid {
			t.Errorf("selector %v: %s", s, plan)
		}
	}
}
