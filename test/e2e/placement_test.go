package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/program"
)

// agentYAML is a DaemonSet whose pods ask for an amount of CPU; a simulated node has 8.
func agentYAML(name, cpu, more string) string {
	return `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ` + name + `, namespace: default}
spec:
  selector: {matchLabels: {app: ` + name + `}}
  template:
    metadata: {labels: {app: ` + name + `}}
    spec:
      ` + more + `
      containers: [{name: c, image: example.com/agent:1, resources: {requests: {cpu: ` + cpu + `}}}]
`
}

func apply(t *testing.T, p *program.Program, yaml string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Kubectl("apply", "-f", file)
}

// awaitPods waits for what kubectl prints of the pods with a label.
func awaitPods(t *testing.T, p *program.Program, what, label, path string, good func(string) bool) {
	t.Helper()
	program.Eventually(t, what, func() string {
		out, err := p.TryKubectl("get", "pods", "-A", "-l", label, "-o", "jsonpath={range .items[*]}"+path+"{\"\\n\"}{end}")
		if err == nil && good(out) {
			return ""
		}
		pods, _ := p.TryKubectl("get", "pods", "-A", "-o", "wide")
		return out + pods
	})
}

func awaitEvent(t *testing.T, p *program.Program, reason, text string) {
	t.Helper()
	program.Eventually(t, "an event "+reason+" with "+text, func() string {
		out, _ := p.TryKubectl("get", "events", "--field-selector", "reason="+reason)
		if strings.Contains(out, text) {
			return ""
		}
		return out
	})
}

func is(want string) func(string) bool {
	return func(got string) bool { return strings.TrimSpace(got) == want }
}

func TestAFullNodeSaysWhoHoldsItAndImportantAgentsGetRoom(t *testing.T) {
	p := program.Start(t, t.TempDir(), "--sim-nodes", "1")
	apply(t, p, agentYAML("filler", "7500m", ""))
	awaitPods(t, p, "a running filler", "app=filler", "{.status.phase}", is("Running"))
	apply(t, p, agentYAML("agent", "700m", ""))
	message := `{.status.conditions[?(@.type=="PodScheduled")].message}`
	awaitPods(t, p, "a message that names numbers and holder", "app=agent", message, func(got string) bool {
		return strings.HasPrefix(got, "0/1 nodes are available: 1 Insufficient cpu. preemption: ") &&
			strings.Contains(got, "asks 700m, free 500m of 8; held by default/filler-")
	})
	awaitEvent(t, p, "FailedScheduling", "held by default/filler-")
	apply(t, p, agentYAML("critical", "2", "priorityClassName: system-node-critical"))
	awaitPods(t, p, "the critical agent on the node", "app=critical", "{.status.phase}", is("Running"))
	awaitEvent(t, p, "Preempted", "pod/filler-")
	awaitPods(t, p, "the agent in the room that is left", "app=agent", "{.status.phase}", is("Running"))
	awaitPods(t, p, "the filler waiting", "app=filler", message, func(got string) bool { return strings.Contains(got, "asks 7500m, free 5300m of 8") })
	p.Interrupt()
}

// TestAnAgentHasFirstClaimOnRoomThatFreesUp: a pod that could go anywhere does not
// take the only place that a pinned one can have.
func TestAnAgentHasFirstClaimOnRoomThatFreesUp(t *testing.T) {
	p := program.Start(t, t.TempDir(), "--sim-nodes", "1")
	apply(t, p, agentYAML("filler", "7500m", ""))
	awaitPods(t, p, "a running filler", "app=filler", "{.status.phase}", is("Running"))
	p.Kubectl("create", "deployment", "web", "--image=example.com/web:1", "--replicas=0")
	p.Kubectl("set", "resources", "deployment", "web", "--requests=cpu=7")
	p.Kubectl("scale", "deployment", "web", "--replicas=3")
	awaitPods(t, p, "three that wait", "app=web", "{.status.phase}", is("Pending\nPending\nPending"))
	apply(t, p, agentYAML("agent", "2", ""))
	awaitPods(t, p, "an agent with a claim", "app=agent", "{.status.nominatedNodeName}", is("sim-1"))
	p.Kubectl("delete", "daemonset", "filler")
	awaitPods(t, p, "the agent on the node", "app=agent", "{.status.phase}", is("Running"))
	awaitPods(t, p, "the others still waiting", "app=web", "{.status.phase}", is("Pending\nPending\nPending"))
	p.Interrupt()
}

// TestUpstreamsSchedulerPlacesWhatIsNotPlain: a pinned pod with a constraint on other
// pods is not for the pinned path, and is placed all the same.
func TestUpstreamsSchedulerPlacesWhatIsNotPlain(t *testing.T) {
	p := program.Start(t, t.TempDir(), "--sim-nodes", "2")
	apply(t, p, agentYAML("alone", "1", `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
        {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: rival}}}]}}`))
	awaitPods(t, p, "both on their nodes", "app=alone", "{.status.phase}", is("Running\nRunning"))
	apply(t, p, agentYAML("rival", "1", ""))
	awaitPods(t, p, "the rival kept away", "app=rival", `{.status.conditions[?(@.type=="PodScheduled")].message}`, func(got string) bool {
		return strings.Count(got, "does not want it in the same kubernetes.io/hostname") == 2
	})
	p.Kubectl("delete", "daemonset", "alone")
	awaitPods(t, p, "the rival on both", "app=rival", "{.status.phase}", is("Running\nRunning"))
	p.Interrupt()
}
