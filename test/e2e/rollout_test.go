package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/test/program"
)

// witness watches an agent's pods and keeps the most nodes that were ever without
// an available one, in the order in which the API tells it.
type witness struct {
	mu    sync.Mutex
	nodes int
	pods  map[string]corev1.Pod
	worst int
	err   error
}

// witnessed begins when an agent is on every node.
func witnessed(t *testing.T, p *program.Program, label string, nodes int) *witness {
	t.Helper()
	w := &witness{nodes: nodes, pods: map[string]corev1.Pod{}}
	client := p.Client()
	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: label})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		w.pods[pod.Name] = pod
	}
	if n := w.without(); n != 0 {
		t.Fatalf("%d nodes are without an agent before it begins", n)
	}
	events, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: label, ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	go w.follow(events.ResultChan())
	return w
}

func (w *witness) follow(events <-chan watch.Event) {
	for e := range events {
		w.mu.Lock()
		switch pod, ok := e.Object.(*corev1.Pod); {
		case !ok:
			w.err = fmt.Errorf("the watch says %v", e.Object)
		case e.Type == watch.Deleted:
			delete(w.pods, pod.Name)
		default:
			w.pods[pod.Name] = *pod
		}
		w.worst = max(w.worst, w.without())
		w.mu.Unlock()
	}
}

// without counts the nodes that no available pod is on.
func (w *witness) without() int {
	on := map[string]bool{}
	for _, p := range w.pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
				on[p.Spec.NodeName] = true
			}
		}
	}
	return w.nodes - len(on)
}

// check demands that the budget was used and kept since the last check.
func (w *witness) check(t *testing.T, what string, budget int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.worst != budget {
		t.Errorf("%s: %d nodes were without an agent at once, the budget is %d (watch: %v)", what, w.worst, budget, w.err)
	}
	w.worst = w.without()
}

func podUIDs(t *testing.T, client kubernetes.Interface, label string) map[string]bool {
	t.Helper()
	list, err := client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{LabelSelector: label})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, p := range list.Items {
		out[string(p.UID)] = true
	}
	return out
}

func awaitAgents(t *testing.T, p *program.Program, what, want string) {
	t.Helper()
	program.Eventually(t, what, func() string {
		return unlike(p.Kubectl("get", "ds", "agent", "-o", "jsonpath={.status.desiredNumberScheduled} {.status.updatedNumberScheduled} {.status.numberAvailable} "+
			"{.status.observedGeneration}={.metadata.generation}"), want)
	})
}

func setImage(p *program.Program, image string) { p.Kubectl("set", "image", "ds/agent", "c="+image) }

// TestARolloutOnFiftyNodesKeepsItsBudget: through a good rollout, three bad ones in a
// row and the way back, never more than 10 % of the nodes are without an agent.
func TestARolloutOnFiftyNodesKeepsItsBudget(t *testing.T) {
	p := program.Start(t, t.TempDir(), "--sim-nodes", "50")
	apply(t, p, strings.Replace(agentYAML("agent", "100m", ""), "spec:\n", "spec:\n  updateStrategy: {rollingUpdate: {maxUnavailable: 10%}}\n", 1))
	awaitAgents(t, p, "an agent on every node", "50 50 50 1=1")
	w := witnessed(t, p, "app=agent", 50)

	setImage(p, "example.com/agent:2")
	if out := p.Kubectl("rollout", "status", "ds/agent", "--timeout=2m"); !strings.Contains(out, "successfully rolled out") {
		t.Errorf("rollout status: %s", out)
	}
	w.check(t, "a good rollout", 5)
	good := revisionOf(t, p, "example.com/agent:2")

	for i, image := range []string{"example.com/a:non-existent", "example.com/b:non-existent", "example.com/c:non-existent"} {
		setImage(p, image)
		awaitAgents(t, p, "the bad image is held", fmt.Sprintf("50 5 45 %d=%d", i+3, i+3))
		w.check(t, image, 5)
	}
	if out, err := p.TryKubectl("rollout", "status", "ds/agent", "--timeout=2s"); err == nil {
		t.Errorf("rollout status calls a held rollout done: %s", out)
	}
	p.Kubectl("rollout", "undo", "ds/agent", "--to-revision="+good)
	awaitAgents(t, p, "the way back", "50 50 50 6=6")
	w.check(t, "the way back", 5)
	if got := p.Kubectl("get", "ds", "agent", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); got != "example.com/agent:2" {
		t.Errorf("undone to %s", got)
	}
	p.Interrupt()
}

// revisionOf is the number under which kubectl lists a template with the image.
func revisionOf(t *testing.T, p *program.Program, image string) string {
	t.Helper()
	for line := range strings.Lines(p.Kubectl("rollout", "history", "ds/agent")) {
		n, _, _ := strings.Cut(line, " ")
		if n != "" && strings.Trim(n, "0123456789") == "" && strings.Contains(p.Kubectl("rollout", "history", "ds/agent", "--revision="+n), image) {
			return n
		}
	}
	t.Fatalf("no revision has %s", image)
	return ""
}

// TestUpstreamTakesOverAndHandsBack: whoever keeps a settled DaemonSet next replaces no
// pod and makes no revision, and a rollout that one began the other ends.
func TestUpstreamTakesOverAndHandsBack(t *testing.T) {
	dir := t.TempDir()
	start := func(keeper string) *program.Program {
		return program.Start(t, dir, "--sim-nodes", "50", "--daemonset-controller", keeper)
	}
	p := start("upstream")
	apply(t, p, strings.Replace(agentYAML("agent", "100m", ""), "spec:\n", "spec:\n  updateStrategy: {rollingUpdate: {maxUnavailable: 10%}}\n", 1))
	awaitAgents(t, p, "an agent on every node", "50 50 50 1=1")
	setImage(p, "example.com/agent:2")
	awaitAgents(t, p, "a rollout by upstream", "50 50 50 2=2")
	history := p.Kubectl("rollout", "history", "ds/agent")
	pods := podUIDs(t, p.Client(), "app=agent")

	same := func(after string) {
		t.Helper()
		if got := p.Kubectl("rollout", "history", "ds/agent"); got != history {
			t.Errorf("%s the history is\n%snot\n%s", after, got, history)
		}
		now := podUIDs(t, p.Client(), "app=agent")
		for uid := range now {
			if !pods[uid] {
				t.Errorf("%s pod %s is new", after, uid)
			}
		}
		if len(now) != len(pods) {
			t.Errorf("%s there are %d pods, there were %d", after, len(now), len(pods))
		}
	}
	p.Interrupt()
	p = start("rollcall")
	// Its conditions show that it has been at work.
	program.Eventually(t, "Rollcall has taken over", func() string {
		return unlike(p.Kubectl("get", "ds", "agent", "-o", `jsonpath={.status.conditions[?(@.type=="Available")].status}`), "True")
	})
	awaitAgents(t, p, "Rollcall counts", "50 50 50 2=2")
	same("after Rollcall has taken over")
	// A rollout in the middle of which upstream takes over again.
	setImage(p, "example.com/agent:non-existent")
	awaitAgents(t, p, "a bad image is held", "50 5 45 3=3")
	history, pods = p.Kubectl("rollout", "history", "ds/agent"), podUIDs(t, p.Client(), "app=agent")
	p.Interrupt()
	p = start("upstream")
	p.Kubectl("patch", "ds", "agent", "-p", `{"spec":{"revisionHistoryLimit":9}}`) // what it has observed it has worked on
	awaitAgents(t, p, "upstream has taken over", "50 5 45 4=4")
	same("after upstream has taken over")
	setImage(p, "example.com/agent:2")
	awaitAgents(t, p, "upstream goes back", "50 50 50 5=5")
	p.Interrupt()
}
