package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

var agentKey = cache.ObjectName{Namespace: "ns", Name: "agent"}

// bench is an engine whose caches show what the test lets them show.
type bench struct {
	*testing.T
	*Engine
	client *fake.Clientset
	made   int
}

func newBench(t *testing.T, nodes int) *bench {
	t.Helper()
	b := &bench{T: t, client: fake.NewClientset()}
	// The fake client gives no UIDs and no versions.
	b.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if w, ok := a.(interface{ GetObject() runtime.Object }); ok {
			b.stamp(w.GetObject().(metav1.Object))
		}
		return false, nil, nil
	})
	var err error
	if b.Engine, err = New(b.client); err != nil {
		t.Fatal(err)
	}
	b.recorder = record.NewFakeRecorder(1000)
	for i := range nodes {
		b.show(b.caches.nodeInformer, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i+1), UID: types.UID(fmt.Sprintf("node-%d", i+1))},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}}})
	}
	one := intstr.FromInt32(1)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent", Generation: 1},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/agent:1"}}}}}}
	if _, err := b.client.AppsV1().DaemonSets("ns").Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.catchUp()
	return b
}

func (b *bench) stamp(o metav1.Object) {
	b.made++
	o.SetResourceVersion(strconv.Itoa(b.made))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", b.made)))
	}
}

func (b *bench) show(inf cache.SharedIndexInformer, o any) {
	b.Helper()
	if err := inf.GetIndexer().Add(o); err != nil {
		b.Fatal(err)
	}
}

// catchUp lets the caches show what the API holds.
func (b *bench) catchUp() {
	b.Helper()
	b.catchUpButPods()
	replace(b, b.caches.podInformer, b.pods())
}

func (b *bench) catchUpButPods() {
	b.Helper()
	ctx := context.Background()
	sets, err1 := b.client.AppsV1().DaemonSets("ns").List(ctx, metav1.ListOptions{})
	revs, err2 := b.client.AppsV1().ControllerRevisions("ns").List(ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	replace(b, b.caches.dsInformer, pointers(sets.Items))
	replace(b, b.caches.revisionInformer, pointers(revs.Items))
}

func replace[T any](b *bench, inf cache.SharedIndexInformer, objects []T) {
	b.Helper()
	var all []any
	for _, o := range objects {
		all = append(all, o)
	}
	if err := inf.GetIndexer().Replace(all, ""); err != nil {
		b.Fatal(err)
	}
}

func pointers[T any](s []T) []*T {
	out := make([]*T, len(s))
	for i := range s {
		out[i] = &s[i]
	}
	return out
}

func (b *bench) pods() []*corev1.Pod {
	b.Helper()
	list, err := b.client.CoreV1().Pods("ns").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return pointers(list.Items)
}

// pass makes one pass and returns the verbs and resources of its writes.
func (b *bench) pass() ([]string, error) {
	b.client.ClearActions()
	_, err := b.sync(context.Background(), agentKey)
	var writes []string
	for _, a := range b.client.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			writes = append(writes, strings.TrimSpace(a.GetVerb()+" "+a.GetResource().Resource+" "+a.GetSubresource()))
		}
	}
	return writes, err
}

// settle makes passes, with the caches up to date and every pod ready, until there is
// nothing to write.
func (b *bench) settle() {
	b.Helper()
	for range 20 {
		for _, p := range b.pods() {
			p.Spec.NodeName = p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
			if _, err := b.client.CoreV1().Pods("ns").Update(context.Background(), p, metav1.UpdateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		b.catchUp()
		writes, err := b.pass()
		if err != nil {
			b.Fatal(err)
		}
		if len(writes) == 0 {
			return
		}
	}
	b.Fatal("it does not settle")
}

func (b *bench) change(image string) {
	b.Helper()
	ds, err := b.client.AppsV1().DaemonSets("ns").Get(context.Background(), "agent", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	ds.Spec.Template.Spec.Containers[0].Image = image
	ds.Generation++
	if _, err := b.client.AppsV1().DaemonSets("ns").Update(context.Background(), ds, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.catchUp()
}

func count(writes []string, what string) int {
	n := 0
	for _, w := range writes {
		if w == what {
			n++
		}
	}
	return n
}

// lose makes the next write of a kind fail with err, after it was done or not.
func (b *bench) lose(verb string, done bool, err error) {
	lost := false
	b.client.PrependReactor(verb, "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if lost {
			return false, nil, nil
		}
		if lost = true; done {
			switch a := a.(type) {
			case clienttesting.CreateAction:
				b.stamp(a.GetObject().(metav1.Object))
				_ = b.client.Tracker().Create(a.GetResource(), a.GetObject(), "ns")
			case clienttesting.DeleteAction:
				_ = b.client.Tracker().Delete(a.GetResource(), "ns", a.GetName())
			}
		}
		return true, nil, err
	})
}

var podResource = schema.GroupResource{Resource: "pods"}

// A delete whose answer is lost may have taken its place of the budget: no other pod
// goes until the caches have shown what became of it.
func TestADeleteWhoseAnswerIsLostKeepsItsPlaceOfTheBudget(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		wait bool
	}{
		"connection lost": {io.ErrUnexpectedEOF, true},
		"server timeout":  {apierrors.NewTimeoutError("too slow", 1), true},
		"refused":         {apierrors.NewForbidden(podResource, "agent", errors.New("no")), false},
		"webhook failed":  {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3)
			b.settle()
			b.change("example.com/agent:2")
			b.lose("delete", c.wait, c.err)
			if writes, err := b.pass(); err == nil || count(writes, "delete pods") != 1 {
				t.Fatalf("the first pass wrote %q, error %v", writes, err)
			}
			b.catchUpButPods()
			writes, err := b.pass() // the caches still show all three
			if want := map[bool]int{true: 0, false: 1}[c.wait]; err != nil || count(writes, "delete pods") != want {
				t.Fatalf("the second pass wrote %q, error %v; want %d deletes", writes, err, want)
			}
			b.settle()
			if n := len(b.pods()); n != 3 {
				t.Fatalf("%d pods at the end", n)
			}
		})
	}
}

func TestACreateWhoseAnswerIsLostMakesNoSecondPod(t *testing.T) {
	b := newBench(t, 1)
	b.lose("create", true, io.ErrUnexpectedEOF)
	if _, err := b.pass(); err == nil {
		t.Fatal("the lost answer is no error")
	}
	b.catchUpButPods()
	if writes, err := b.pass(); err != nil || count(writes, "create pods") != 0 {
		t.Fatalf("before the caches show it, a pass wrote %q, error %v", writes, err)
	}
	b.settle()
	if n := len(b.pods()); n != 1 {
		t.Fatalf("%d pods for one node", n)
	}
}

// What stands under the name of the wanted pod is taken in where it can be, waited
// for where the caches are late, and stepped around where it is another's.
func TestAPodsNameThatIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		pods   int
	}{
		"by the pod itself":    {func(*corev1.Pod) {}, 1},
		"by one to adopt":      {func(p *corev1.Pod) { p.OwnerReferences = nil }, 1},
		"by one of others":     {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }, 2},
		"by one not selected":  {func(p *corev1.Pod) { p.OwnerReferences, p.Labels = nil, nil }, 2},
		"by one that is going": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			if _, err := b.pass(); err != nil {
				t.Fatal(err)
			}
			p := b.pods()[0]
			c.change(p)
			if err := b.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, "ns"); err != nil {
				t.Fatal(err)
			}
			b.forget(agentKey) // another engine, whose pods' cache is behind
			b.catchUpButPods()
			for range 2 {
				if _, err := b.pass(); err != nil && !strings.Contains(err.Error(), "the name belongs to another") {
					t.Fatal(err)
				}
			}
			b.catchUp()
			b.settle()
			if n := len(b.pods()); n != c.pods {
				t.Fatalf("%d pods, want %d", n, c.pods)
			}
		})
	}
}

// Every pod that is refused stays with its node: the others get theirs, the status is
// written, and the refused node's line in the roll call says why.
func TestOneNodesRefusalHoldsBackNoOther(t *testing.T) {
	b := newBench(t, 40)
	b.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		if p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0] == "n7" {
			return true, nil, apierrors.NewForbidden(podResource, p.Name, errors.New("not on n7"))
		}
		return false, nil, nil
	})
	writes, err := b.pass()
	if err == nil || len(b.pods()) != 39 || count(writes, "update daemonsets status") != 1 {
		t.Fatalf("%d pods, writes %q, error %v", len(b.pods()), writes, err)
	}
	b.catchUp()
	_, _ = b.pass()
	plan, _ := b.Plan("ns", "agent")
	i := slices.IndexFunc(plan.Roll, func(p daemonset.Presence) bool { return p.Node == "n7" })
	if got := fmt.Sprint(plan.Roll[i].Reasons); !strings.Contains(got, "not on n7") {
		t.Fatalf("the roll call says of n7: %s", got)
	}
}

// A quota that is used up is not asked a thousand times, and every node has its turn.
func TestRefusalsInARowEndThePass(t *testing.T) {
	b := newBench(t, 200)
	var asked []string
	b.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		asked = append(asked, p.Name)
		return true, nil, apierrors.NewForbidden(podResource, p.Name, errors.New("exceeded quota"))
	})
	_, err := b.pass()
	if err == nil || len(asked) > 2*refusals || !strings.Contains(err.Error(), "left to the next pass") {
		t.Fatalf("%d were asked for, error %v", len(asked), err)
	}
	first := asked[0]
	b.catchUp()
	asked = nil
	if _, err = b.pass(); err == nil || asked[0] == first {
		t.Fatalf("the next pass begins with %s again, error %v", first, err)
	}
}

// A plan's order is kept: revisions before the pods that carry their hash, and the
// deletion of old ones after the deletion of their pods.
func TestWritesKeepTheOrderOfThePlan(t *testing.T) {
	b := newBench(t, 1)
	b.settle()
	ds, err := b.client.AppsV1().DaemonSets("ns").Get(t.Context(), "agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rev := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent-x", UID: "x"}}
	pod := b.pods()[0]
	plan := daemonset.Plan{Status: ds.Status, Actions: []daemonset.Action{
		{Verb: daemonset.CreateRevision, Revision: rev}, {Verb: daemonset.LabelPod, Pod: pod}, {Verb: daemonset.DeletePod, Pod: pod},
		{Verb: daemonset.CreatePod, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent-new"}}}, {Verb: daemonset.DeleteRevision, Revision: rev}}}
	b.client.ClearActions()
	if err := b.apply(t.Context(), ds, plan, newMemory()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range b.client.Actions() {
		got = append(got, a.GetVerb()+" "+a.GetResource().Resource)
	}
	want := []string{"create controllerrevisions", "patch pods", "delete pods", "create pods", "delete controllerrevisions"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}
