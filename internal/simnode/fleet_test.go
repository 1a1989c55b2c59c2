package simnode

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// start runs a fleet until the test ends.
func start(t *testing.T, cfg Config) *Fleet {
	t.Helper()
	f := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-f.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the fleet is not ready")
	}
	return f
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func podOn(name, node, sim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "u-1", Annotations: map[string]string{Annotation: sim}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func TestAFleetRegistersAndPlaysPods(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	f := start(t, Config{Client: client, Nodes: Specs(3), Version: "v1.37.2"})
	o, err := client.CoreV1().Nodes().Get(ctx, "sim-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Labels[Label] != "true" || o.Labels[corev1.LabelHostname] != "sim-2" || o.Status.NodeInfo.KubeletVersion != "v1.37.2" || !readyNode(o) ||
		o.Status.Allocatable.Pods().Value() != 110 || o.Status.Addresses[0].Address != "198.18.0.2" {
		t.Errorf("%+v", o)
	}
	l, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "sim-2", metav1.GetOptions{})
	if err != nil || *l.Spec.LeaseDurationSeconds != 40 || l.OwnerReferences[0].Name != "sim-2" {
		t.Errorf("lease %+v, %v", l, err)
	}
	pods := client.CoreV1().Pods("ns")
	create := func(p *corev1.Pod) {
		if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) *corev1.Pod {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	create(podOn("well", "sim-1", ""))
	create(podOn("elsewhere", "real", ""))
	create(podOn("typo", "sim-1", "krash"))
	create(podOn("crash", "sim-1", "crash@kubernetes.io/hostname=sim-1"))
	failed := podOn("failed", "sim-1", "")
	failed.Status.Phase = corev1.PodFailed
	create(failed)
	eventually(t, "the pod is ready", func() bool { return isReady(get("well").Status.Conditions) })
	eventually(t, "the pod crashes", func() bool { return len(get("crash").Status.ContainerStatuses) > 0 })
	eventually(t, "the typo is told", func() bool {
		list, err := client.CoreV1().Events("ns").List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && list.Items[0].Reason == "InvalidSimAnnotation"
	})
	if get("typo").Status.Phase != "" || get("elsewhere").Status.Phase != "" || get("failed").Status.Phase != corev1.PodFailed {
		t.Error("a pod was written that is to be left alone")
	}
	if got := get("crash").Status.ContainerStatuses[0].RestartCount; got != 1 {
		t.Errorf("%d restarts at once", got)
	}

	f.SetReady("sim-3", false)
	create(podOn("dark", "sim-3", ""))
	time.Sleep(100 * time.Millisecond)
	if get("dark").Status.Phase != "" {
		t.Error("a pod started on a node without power")
	}
	f.SetReady("sim-3", true)
	eventually(t, "the pod starts when the power is back", func() bool { return isReady(get("dark").Status.Conditions) })
}

func TestADeletedPodEndsUnlessStuck(t *testing.T) {
	ctx := context.Background()
	now, grace := metav1.Now(), int64(30)
	for _, name := range []string{"ends", "stuck"} {
		p := podOn(name, "sim-1", map[string]string{"stuck": "stuck-terminating"}[name])
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
		client := fake.NewClientset(p)
		start(t, Config{Client: client, Nodes: Specs(1), TerminationDelay: 20 * time.Millisecond})
		gone := func() bool {
			_, err := client.CoreV1().Pods("ns").Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}
		if name == "ends" {
			eventually(t, "the pod is gone", gone)
		} else if time.Sleep(200 * time.Millisecond); gone() {
			t.Error("the stuck pod is gone")
		}
	}
}

func TestADeletedNodeStaysDeleted(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	f := start(t, Config{Client: client, Nodes: Specs(2)})
	if err := client.CoreV1().Nodes().Delete(ctx, "sim-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n := f.nodes["sim-1"]
	eventually(t, "the fleet notices", func() bool { return !f.alive(n) })
	f.SetReady("sim-1", true)
	f.beat(ctx, n)
	if _, err := client.CoreV1().Nodes().Get(ctx, "sim-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the node is back: %v", err)
	}
}

func TestANodeThatIsCalledUnknownSaysItIsReady(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	start(t, Config{Client: client, Nodes: Specs(1), Version: "v1"})
	o, err := client.CoreV1().Nodes().Get(ctx, "sim-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.Status.Conditions {
		o.Status.Conditions[i].Status = corev1.ConditionUnknown
	}
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is ready again", func() bool {
		o, err := client.CoreV1().Nodes().Get(ctx, "sim-1", metav1.GetOptions{})
		return err == nil && readyNode(o)
	})
}

func TestANodeThatIsNotSimulatedIsNotTakenOver(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "sim-1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{Label: "true"}}})
	if err := New(Config{Client: client, Nodes: Specs(1)}).Run(context.Background()); err == nil {
		t.Error("it was taken over")
	}
	start(t, Config{Client: client, Nodes: []Spec{{Name: "old", Labels: map[string]string{"zone": "a"}}}})
	o, err := client.CoreV1().Nodes().Get(context.Background(), "old", metav1.GetOptions{})
	if err != nil || o.Labels["zone"] != "a" {
		t.Errorf("%+v, %v", o, err)
	}
}
