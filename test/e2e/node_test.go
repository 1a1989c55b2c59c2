package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/program"
)

// needRealNode skips where the kernel or the user's rights do not allow a node. What
// else keeps this machine from being one is a failure.
func needRealNode(t *testing.T) (name string) {
	t.Helper()
	out, err := exec.Command(program.Bin(t), "up", "--local-node", "yes", "--data-dir", t.TempDir(), "--api-address", "no address").CombinedOutput()
	if err == nil {
		t.Fatal("an address that is none was taken")
	}
	for _, reason := range []string{"needs root", "root without CAP_", "the kernel has no", "no cgroup controller"} {
		if strings.Contains(string(out), reason) {
			t.Skipf("no real container can run here: %s", out)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ToLower(host)
}

func TestThisMachineRunsTheAgentAndStaysAsItWas(t *testing.T) {
	name, dir := needRealNode(t), t.TempDir()
	before := machineState(t)
	p := program.Start(t, dir, "--local-node", "yes", "--sim-nodes", "2", "--apply", example)
	program.Eventually(t, "the machine joins", func() string {
		out, _ := p.TryKubectl("get", "node", name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion} {.status.conditions[?(@.type=='Ready')].status}")
		if strings.HasPrefix(out, "v1.37.") && strings.HasSuffix(out, " True") {
			return ""
		}
		return out
	})
	awaitCounters(t, p, "an agent on every node", "3 3 3")
	pods := podNames(t, p)
	agentServes(t, p, name)
	pod := podOn(t, p, name)
	if out := p.Kubectl("-n", "monitoring", "logs", pod.Name); !strings.Contains(out, "Listening on") {
		t.Errorf("logs: %s", out)
	}
	if out := p.Kubectl("-n", "monitoring", "exec", pod.Name, "--", "/bin/node_exporter", "--version"); !strings.Contains(out, "1.8.2") {
		t.Errorf("exec: %s", out)
	}
	archive := filepath.Join(dir, "node", "images", "pause.tar")
	if out, err := exec.Command(program.Bin(t), "image", "import", "--data-dir", dir, archive).CombinedOutput(); err != nil || !strings.Contains(string(out), "imported rollcall.dev/pause:1") {
		t.Errorf("image import: %v, %s", err, out)
	}
	if tokens := p.Kubectl("-n", "kube-system", "get", "secrets", "-o", "name"); strings.Contains(tokens, "bootstrap-token") {
		t.Errorf("the token with which the machine joined is still good: %s", tokens)
	}
	if during := machineState(t); during == before {
		t.Error("the comparison of the machine sees no node while one runs")
	}

	killAll(t, p, dir)
	p = program.Start(t, dir, "--local-node", "yes", "--sim-nodes", "2")
	program.Eventually(t, "the agent is started again", func() string {
		return unlike(p.Kubectl("-n", "monitoring", "get", "pod", pod.Name, "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}"), "1 true")
	})
	awaitCounters(t, p, "an agent on every node after kill -9", "3 3 3")
	if after := podNames(t, p); !slices.Equal(pods, after) {
		t.Errorf("pods before kill -9: %v\nafter: %v", pods, after)
	}
	agentServes(t, p, name)
	p.Interrupt()
	if after := machineState(t); after != before {
		t.Errorf("the machine was\n%s\nand is\n%s", before, after)
	}
}

type podID struct{ Name, UID string }

// podOn is the example's pod on a node.
func podOn(t *testing.T, p *program.Program, node string) podID {
	t.Helper()
	list, err := p.Client().CoreV1().Pods("monitoring").List(context.Background(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d pods on %s, want 1", len(list.Items), node)
	}
	return podID{list.Items[0].Name, string(list.Items[0].UID)}
}

// agentServes checks that the process behind port 9100 is that of the pod which the
// API reports, and that it answers with this machine's metrics.
func agentServes(t *testing.T, p *program.Program, node string) {
	t.Helper()
	pod := podOn(t, p, node)
	pid := listener(t, 9100)
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(cgroups), "pod"+pod.UID) {
		t.Errorf("process %d listens on port 9100 outside of the cgroup of pod %s:\n%s", pid, pod.UID, cgroups)
	}
	resp, err := http.Get("http://127.0.0.1:9100/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), "node_cpu_seconds_total") {
		t.Errorf("no metrics in %d bytes: %v", len(body), err)
	}
}

// listener is the process that listens on a TCP port of this machine.
func listener(t *testing.T, port int) int {
	t.Helper()
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, _ := os.ReadFile(table)
		for _, line := range strings.Split(string(raw), "\n") {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return owner(t, "socket:["+f[9]+"]")
			}
		}
	}
	t.Fatalf("nobody listens on port %d", port)
	return 0
}

func owner(t *testing.T, socket string) int {
	t.Helper()
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && target == socket {
			pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
			return pid
		}
	}
	t.Fatalf("nobody owns %s", socket)
	return 0
}

// killAll kills, as a power cut would but for the pods, every process of the
// program that names its data directory.
func killAll(t *testing.T, p *program.Program, dir string) {
	t.Helper()
	victims := processes(func(cmdline string) bool {
		return strings.Contains(cmdline, dir) || strings.Contains(cmdline, "rollcall kubelet")
	})
	if len(victims) < 4 {
		t.Fatalf("only %d processes, want the program, the box, containerd and the kubelet", len(victims))
	}
	for _, pid := range victims {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.Kill()
}

func processes(match func(cmdline string) bool) []int {
	var out []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		if pid, _ := strconv.Atoi(strings.Split(f, "/")[2]); pid != os.Getpid() && match(strings.ReplaceAll(string(raw), "\x00", " ")) {
			out = append(out, pid)
		}
	}
	return out
}

// machineState is what a run must leave as it was.
func machineState(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	out.Write(mounts)
	links, _ := filepath.Glob("/sys/class/net/*")
	fmt.Fprintln(&out, "links", links)
	tables, _ := exec.Command("nft", "list", "ruleset").Output()
	fmt.Fprintf(&out, "nftables %s\n", tables)
	groups, _ := exec.Command("find", "/sys/fs/cgroup", "-type", "d", "-name", "*rollcall*").Output()
	fmt.Fprintf(&out, "cgroups %s\n", groups)
	for _, dir := range []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/var/lib/cni", "/etc/cni", "/run/containerd", "/usr/libexec/kubernetes"} {
		entries, err := os.ReadDir(dir)
		fmt.Fprintln(&out, dir, err == nil, len(entries))
	}
	for _, k := range []string{"net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"} {
		v, _ := os.ReadFile("/proc/sys/" + k)
		fmt.Fprintf(&out, "%s %s", k, v)
	}
	left := processes(func(cmdline string) bool {
		return slices.ContainsFunc([]string{"containerd", "/pause", "node_exporter", "rollcall kubelet", "node-box"}, func(s string) bool { return strings.Contains(cmdline, s) })
	})
	fmt.Fprintln(&out, "processes", left)
	return out.String()
}

// The second time would be refused if the first had left its kubelet's port taken.
func TestASecondNodeOnThisMachineIsRefused(t *testing.T) {
	needRealNode(t)
	p := program.Start(t, t.TempDir(), "--local-node", "yes")
	program.Eventually(t, "the kubelet", func() string {
		if strings.Contains(p.Said(), "Ready after") {
			return ""
		}
		return p.Said()
	})
	out, err := exec.Command(program.Bin(t), "up", "--local-node", "yes", "--data-dir", t.TempDir(), "--api-address", program.FreeAddress(t)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--local-node yes: the kubelet's port is taken") {
		t.Errorf("a second node: %v, %s", err, out)
	}
	began := time.Now()
	p.Interrupt()
	t.Logf("ended in %s", time.Since(began).Round(100*time.Millisecond))
}
