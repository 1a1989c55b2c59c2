package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/program"
)

const (
	nodes   = "20"
	example = "../../examples/node-exporter.yaml"
)

// podNames are those of the example's pods, sorted.
func podNames(t *testing.T, p *program.Program) []string {
	t.Helper()
	list, err := p.Client().CoreV1().Pods("monitoring").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, pod := range list.Items {
		out = append(out, pod.Name)
	}
	slices.Sort(out)
	return out
}

// counters are the example's: desired, updated, available.
func counters(p *program.Program) string {
	return p.Kubectl("-n", "monitoring", "get", "ds", "node-exporter", "-o",
		"jsonpath={.status.desiredNumberScheduled} {.status.updatedNumberScheduled} {.status.numberAvailable}")
}

func awaitCounters(t *testing.T, p *program.Program, what, want string) {
	t.Helper()
	program.Eventually(t, what, func() string { return unlike(counters(p), want) })
}

func unlike[T comparable](got, want T) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("got %v, want %v", got, want)
}

func TestAnAgentOnEveryNodeThroughRolloutCrashAndRestart(t *testing.T) {
	dir := t.TempDir()
	p := program.Start(t, dir, "--sim-nodes", nodes)
	p.Kubectl("apply", "-f", example)
	awaitCounters(t, p, "an agent on every node", "20 20 20")

	p.Kubectl("-n", "monitoring", "set", "image", "ds/node-exporter", "node-exporter=quay.io/prometheus/node-exporter:v1.9.0")
	if out := p.Kubectl("-n", "monitoring", "rollout", "status", "ds/node-exporter"); !strings.Contains(out, "successfully rolled out") {
		t.Errorf("rollout status: %s", out)
	}

	// A bad image takes down what the budget (10 % of 20) allows, and no more.
	p.Kubectl("-n", "monitoring", "set", "image", "ds/node-exporter", "node-exporter=example.invalid/agent:non-existent")
	awaitCounters(t, p, "the bad image is held", "20 2 18")
	whySaysWhatIsMissing(t, p)
	p.Kubectl("-n", "monitoring", "rollout", "undo", "ds/node-exporter")
	awaitCounters(t, p, "undo", "20 20 20")
	history := p.Kubectl("-n", "monitoring", "rollout", "history", "ds/node-exporter")
	for _, want := range []string{"\n1 ", "\n3 ", "\n4 "} {
		if !strings.Contains(history, want) {
			t.Errorf("history lacks revision %q:\n%s", want, history)
		}
	}

	p.Kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
	program.Eventually(t, "a Deployment's pods", func() string {
		return unlike(p.Kubectl("get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"), "2")
	})

	// kill -9 loses nothing, and the restart replaces nothing.
	before := podNames(t, p)
	p.Kill()
	p = program.Start(t, dir, "--sim-nodes", nodes)
	awaitCounters(t, p, "the engine after a restart", "20 20 20")
	if after := podNames(t, p); !slices.Equal(before, after) {
		t.Errorf("pods before kill -9: %v\nafter: %v", before, after)
	}
	p.Kubectl("delete", "node", "sim-3")
	awaitCounters(t, p, "a deleted node leaves", "19 19 19")
	info, err := os.Stat(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("admin.kubeconfig: %v, %v; want mode 0600", info.Mode(), err)
	}
	p.Interrupt()
}
