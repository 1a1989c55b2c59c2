package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/program"
)

func TestWhatCannotStartSaysWhatToDo(t *testing.T) {
	running := program.Start(t, t.TempDir(), "--lean")
	newer := t.TempDir()
	if err := os.WriteFile(filepath.Join(newer, "version"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	notTar := filepath.Join(t.TempDir(), "not.tar")
	if err := os.WriteFile(notTar, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"port in use", "choose another with --api-address", []string{"up", "--local-node", "no", "--data-dir", t.TempDir(), "--api-address", running.Address}},
		{"directory in use", "choose another --data-dir", []string{"up", "--data-dir", running.Dir, "--api-address", program.FreeAddress(t)}},
		{"newer data", "written by a newer rollcall", []string{"server", "--data-dir", newer, "--api-address", program.FreeAddress(t)}},
		{"address without a port", "write HOST:PORT", []string{"server", "--data-dir", t.TempDir(), "--api-address", "127.0.0.1"}},
		{"missing manifest", "--apply", []string{"up", "--data-dir", t.TempDir(), "--apply", "no-such-file.yaml"}},
		{"unknown kind of local node", "write auto, yes or no", []string{"up", "--data-dir", t.TempDir(), "--local-node", "maybe"}},
		{"negative number", "--sim-nodes", []string{"up", "--data-dir", t.TempDir(), "--sim-nodes", "-1"}},
		{"unknown flag", "unknown flag", []string{"up", "--nodes", "3"}},
		{"reset of another directory", "not a data directory", []string{"reset", "--yes", "--data-dir", t.TempDir()}},
		{"reset while running", "is in use by process", []string{"reset", "--yes", "--data-dir", running.Dir}},
		{"import without a file", "no such file", []string{"image", "import", "--data-dir", running.Dir, "ghost.tar"}},
		{"import without a node", "start one with rollcall up", []string{"image", "import", "--data-dir", running.Dir, notTar}},
		{"snapshot of nothing", "name it with --data-dir", []string{"snapshot", "save", "--data-dir", t.TempDir(), filepath.Join(t.TempDir(), "s.tar")}},
		{"snapshot over a file", "--force", []string{"snapshot", "save", "--data-dir", running.Dir, notTar}},
		{"restore of no snapshot", "not a snapshot", []string{"snapshot", "restore", "--data-dir", t.TempDir(), notTar}},
	} {
		out, err := exec.Command(program.Bin(t), c.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "panic") {
			t.Errorf("%s: got %v, %q; want a failure that says %q", c.name, err, out, c.want)
		}
	}
	running.Interrupt()
}

func TestLeanWarnsOfKindsWithoutAController(t *testing.T) {
	p := program.Start(t, t.TempDir(), "--lean", "--sim-nodes", "2")
	if out := p.Kubectl("create", "deployment", "web", "--image=nginx"); !strings.Contains(out, "Warning: this control plane runs with --lean and has no controller for deployments: it gets no pods") {
		t.Errorf("no warning for a Deployment: %s", out)
	}
	if out := p.Kubectl("apply", "-f", example); strings.Contains(out, "Warning") {
		t.Errorf("a warning for what works: %s", out)
	}
	awaitCounters(t, p, "an agent on every node", "2 2 2")
	p.Interrupt()
}

func TestWhatIsDoubtfulIsSaidAtApply(t *testing.T) {
	p := program.Start(t, t.TempDir(), "--lean", "--sim-nodes", "3")
	surge := filepath.Join(t.TempDir(), "surge.yaml")
	raw, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	doubtful := strings.NewReplacer("maxUnavailable: 10%", "maxUnavailable: 0\n      maxSurge: 1", "enforce: privileged", "enforce: baseline").Replace(string(raw))
	if err := os.WriteFile(surge, []byte(doubtful), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Kubectl("create", "namespace", "monitoring")
	p.Kubectl("label", "namespace", "monitoring", "pod-security.kubernetes.io/enforce=baseline")
	if out := p.Kubectl("annotate", "namespace", "monitoring", "rollcall.dev/progress-deadline=soon"); !strings.Contains(out, `Warning: annotation rollcall.dev/progress-deadline: "soon" cannot be read`) {
		t.Errorf("no warning for a setting that cannot be read: %s", out)
	}
	out := p.Kubectl("apply", "-f", surge)
	for _, want := range []string{"cannot share host port 9100", "set maxSurge to 0 and maxUnavailable to 1", "hostPath volumes", "the lowest level that admits it is privileged"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the warnings: %s", want, out)
		}
	}
	program.Eventually(t, "conditions that hold the rollout and a roll that names the refusal", func() string {
		stalled, _ := p.TryKubectl("get", "ds", "-n", "monitoring", "node-exporter", "-o", `jsonpath={.status.conditions[?(@.type=="Stalled")].reason}`)
		available, _ := p.TryKubectl("get", "ds", "-n", "monitoring", "node-exporter", "-o", `jsonpath={.status.conditions[?(@.type=="Available")].message}`)
		if stalled == "SettingInvalid" && strings.Contains(available, "sim-1 (PodRefused)") {
			return ""
		}
		return stalled + " " + available
	})
	p.Kubectl("label", "namespace", "monitoring", "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
	awaitCounters(t, p, "an agent on every node once the level admits it", "3 3 3")
	p.Interrupt()
}

func TestASnapshotBringsTheClusterBack(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "snapshot.tar")
	p := program.Start(t, dir, "--sim-nodes", "3")
	p.Kubectl("apply", "-f", example)
	awaitCounters(t, p, "an agent on every node", "3 3 3")
	rollcall := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program.Bin(t), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("rollcall %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	before := podNames(t, p)
	rollcall("snapshot", "save", "--data-dir", dir, file) // while it runs
	p.Kubectl("delete", "ns", "monitoring")
	p.Interrupt()
	rollcall("snapshot", "save", "--data-dir", dir, file+".after") // while it does not
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot, which holds keys: %v, %v; want mode 0600", info, err)
	}

	restored := t.TempDir()
	rollcall("snapshot", "restore", "--data-dir", restored, file)
	if out, err := exec.Command(program.Bin(t), "snapshot", "restore", "--data-dir", restored, file).CombinedOutput(); err == nil || !strings.Contains(string(out), "holds a cluster already") {
		t.Errorf("a second restore: %v, %s", err, out)
	}
	p = program.Start(t, restored, "--sim-nodes", "3")
	awaitCounters(t, p, "the cluster of the snapshot", "3 3 3")
	if after := podNames(t, p); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("pods in the snapshot: %v\nrestored: %v", before, after)
	}
	p.Interrupt()

	later := t.TempDir()
	rollcall("snapshot", "restore", "--data-dir", later, file+".after")
	p = program.Start(t, later)
	if out, err := p.TryKubectl("get", "ns", "monitoring"); err == nil {
		t.Errorf("the namespace that was deleted before the second snapshot is back: %s", out)
	}
	p.Interrupt()
}
