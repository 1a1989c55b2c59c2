package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nodes = "20"

// podNames are those of the example's pods, sorted.
func (p *program) podNames() []string {
	p.t.Helper()
	list, err := p.client().CoreV1().Pods("monitoring").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for _, pod := range list.Items {
		out = append(out, pod.Name)
	}
	slices.Sort(out)
	return out
}

func (p *program) counters() string {
	return p.kubectl("-n", "monitoring", "get", "ds", "node-exporter", "-o",
		"jsonpath={.status.desiredNumberScheduled} {.status.updatedNumberScheduled} {.status.numberAvailable}")
}

func TestAnAgentOnEveryNodeThroughRolloutCrashAndRestart(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "--sim-nodes", nodes)
	p.kubectl("apply", "-f", "../../examples/node-exporter.yaml")
	eventually(t, "an agent on every node", func() string { return unlike(p.counters(), "20 20 20") })

	p.kubectl("-n", "monitoring", "set", "image", "ds/node-exporter", "node-exporter=quay.io/prometheus/node-exporter:v1.9.0")
	if out := p.kubectl("-n", "monitoring", "rollout", "status", "ds/node-exporter"); !strings.Contains(out, "successfully rolled out") {
		t.Errorf("rollout status: %s", out)
	}

	// A bad image takes down what the budget (10 % of 20) allows, and no more.
	p.kubectl("-n", "monitoring", "set", "image", "ds/node-exporter", "node-exporter=example.invalid/agent:non-existent")
	eventually(t, "the bad image is held", func() string { return unlike(p.counters(), "20 2 18") })
	p.kubectl("-n", "monitoring", "rollout", "undo", "ds/node-exporter")
	eventually(t, "undo", func() string { return unlike(p.counters(), "20 20 20") })
	history := p.kubectl("-n", "monitoring", "rollout", "history", "ds/node-exporter")
	for _, want := range []string{"\n1 ", "\n3 ", "\n4 "} {
		if !strings.Contains(history, want) {
			t.Errorf("history lacks revision %q:\n%s", want, history)
		}
	}

	p.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
	eventually(t, "a Deployment's pods", func() string {
		return unlike(p.kubectl("get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"), "2")
	})

	// kill -9 loses nothing, and the restart replaces nothing.
	before := p.podNames()
	p.kill()
	p = start(t, dir, "--sim-nodes", nodes)
	eventually(t, "the engine after a restart", func() string { return unlike(p.counters(), "20 20 20") })
	if after := p.podNames(); !slices.Equal(before, after) {
		t.Errorf("pods before kill -9: %v\nafter: %v", before, after)
	}
	p.kubectl("delete", "node", "sim-3")
	eventually(t, "a deleted node leaves", func() string { return unlike(p.counters(), "19 19 19") })
	info, err := os.Stat(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("admin.kubeconfig: %v, %v; want mode 0600", info.Mode(), err)
	}
	p.interrupt()
}

func TestWhatCannotStartSaysWhatToDo(t *testing.T) {
	running := start(t, t.TempDir(), "--lean")
	newer := t.TempDir()
	if err := os.WriteFile(filepath.Join(newer, "version"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"port in use", "choose another with --api-address", []string{"up", "--data-dir", t.TempDir(), "--api-address", running.address}},
		{"directory in use", "choose another --data-dir", []string{"up", "--data-dir", running.dir, "--api-address", freeAddress(t)}},
		{"newer data", "written by a newer rollcall", []string{"up", "--data-dir", newer, "--api-address", freeAddress(t)}},
		{"address without a port", "write HOST:PORT", []string{"up", "--data-dir", t.TempDir(), "--api-address", "127.0.0.1"}},
		{"missing manifest", "--apply", []string{"up", "--data-dir", t.TempDir(), "--apply", "no-such-file.yaml"}},
		{"unknown kind of local node", "write auto, yes or no", []string{"up", "--data-dir", t.TempDir(), "--local-node", "maybe"}},
		{"negative number", "--sim-nodes", []string{"up", "--data-dir", t.TempDir(), "--sim-nodes", "-1"}},
		{"unknown flag", "unknown flag", []string{"up", "--nodes", "3"}},
		{"reset of another directory", "not a data directory", []string{"reset", "--yes", "--data-dir", t.TempDir()}},
	} {
		out, err := exec.Command(bin(t), c.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: got %v, %q; want a failure that says %q", c.name, err, out, c.want)
		}
	}
	running.interrupt()
}
