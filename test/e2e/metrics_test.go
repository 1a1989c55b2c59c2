package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/program"
)

// TestMetricsAreThoseOfThePage: every metric that the page and the alerts name is
// served while a rollout goes on.
func TestMetricsAreThoseOfThePage(t *testing.T) {
	p := program.Start(t, t.TempDir(), "--lean", "--sim-nodes", "3")
	p.Kubectl("apply", "-f", example)
	awaitCounters(t, p, "an agent on every node", "3 3 3")
	p.Kubectl("set", "image", "-n", "monitoring", "ds/node-exporter", "node-exporter=example.com/none:non-existent")
	var served string
	program.Eventually(t, "a rollout that runs, in the metrics", func() string {
		out, err := p.TryKubectl("get", "--raw", "/metrics")
		if err == nil && strings.Contains(out, `rollcall_rollout_running_seconds{daemonset="node-exporter",namespace="monitoring"}`) &&
			strings.Contains(out, `rollcall_missing_nodes{cause="ContainerWaiting",daemonset="node-exporter",namespace="monitoring"} 1`) {
			served = out
			return ""
		}
		return "no such series"
	})
	if !strings.Contains(served, `kube_daemonset_status_desired_number_scheduled{daemonset="node-exporter",namespace="monitoring"} 3`) {
		t.Error("the counters are not those of the DaemonSet")
	}
	for _, file := range []string{"../../docs/metrics.md", "../../docs/alerts.yaml"} {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\b(?:rollcall_[a-z_]+|kube_daemonset_[a-z_]+|workqueue_[a-z_]+)\b`).FindAllString(string(page), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range names {
			if !strings.Contains(served, "\n# TYPE "+name+" ") {
				t.Errorf("%s names %s, which is not served", file, name)
			}
		}
	}
	p.Interrupt()
}

// TestADeletionDoesNotWaitForADeadNode: in the foreground the DaemonSet goes although
// a pod's node never answers.
func TestADeletionDoesNotWaitForADeadNode(t *testing.T) {
	p := program.Start(t, t.TempDir(), "--lean", "--sim-nodes", "1")
	apply(t, p, "{apiVersion: v1, kind: Node, metadata: {name: ghost}}")
	p.Kubectl("patch", "node", "ghost", "--subresource=status", "-p", `{"status":{"allocatable":{"cpu":"8","memory":"8Gi","pods":"10"}}}`)
	apply(t, p, agentYAML("agent", "100m", "tolerations: [{operator: Exists}]"))
	awaitPods(t, p, "a pod bound to the node that never answers", "app=agent", "{.spec.nodeName} ", func(got string) bool { return strings.Contains(got, "ghost") })
	p.Kubectl("delete", "ds", "agent", "--cascade=foreground", "--timeout=60s")
	if out := p.Kubectl("get", "pods", "-A", "-o", "name"); !strings.Contains(out, "pod/agent-") {
		t.Errorf("the pod of the dead node is gone without its kubelet: %s", out)
	}
	p.Interrupt()
}
