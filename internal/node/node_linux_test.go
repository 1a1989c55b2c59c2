package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestMain is the box, or a program with a node, when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "node-box" {
		if err := BoxMain(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "node-box:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "test-owner" {
		n, err := Start(context.Background(), testConfig(os.Args[2]))
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("ready")
		fmt.Println(n.Wait())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func testConfig(dir string) Config {
	bin, _ := filepath.Abs("../../bin")
	return Config{Name: "test-" + filepath.Base(dir), DataDir: dir, BinDir: bin, PodCIDR: "10.42.99.0/24", Log: os.Stderr}
}

// needMachine skips where no node can be, and returns a short directory.
func needMachine(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real containers")
	}
	if err := Supported(); err != nil {
		t.Skipf("this machine cannot be a node: %v", err)
	}
	if _, err := os.Stat("../../bin/containerd"); err != nil {
		t.Skip("bin/containerd is not built: run tools/build.sh bin")
	}
	if other, _ := filepath.Glob("/sys/class/net/" + bridge); len(other) > 0 {
		t.Skip("another node runs on this machine")
	}
	dir, err := os.MkdirTemp("", "rcnode")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Cleanup(dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, l := range []string{"containerd.log"} {
				raw, _ := os.ReadFile(filepath.Join(dir, "logs", l))
				t.Logf("%s: ...%s", l, raw[max(0, len(raw)-3000):])
			}
		}
		os.RemoveAll(dir)
	})
	return dir
}

// machine is what a node must leave as it was.
func machine(dir string) map[string]string {
	out := map[string]string{}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	out["mounts"] = string(mounts)
	links, _ := filepath.Glob("/sys/class/net/*")
	out["links"] = strings.Join(links, "\n")
	var groups []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(p, "rollcall-"+testConfig(dir).Name) {
			groups = append(groups, p)
		}
		return nil
	})
	out["cgroups"] = strings.Join(groups, "\n")
	var procs []string
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range cmdlines {
		raw, _ := os.ReadFile(f)
		for _, part := range []string{dir, "containerd", "runc", "/pause", "node_exporter"} {
			if bytes.Contains(raw, []byte(part)) && !strings.Contains(f, fmt.Sprint("/", os.Getpid(), "/")) {
				procs = append(procs, string(bytes.ReplaceAll(raw, []byte{0}, []byte(" "))))
				break
			}
		}
	}
	out["processes"] = strings.Join(procs, "\n")
	for _, m := range testConfig(dir).mounts() {
		for p := m.Target; p != "/"; p = filepath.Dir(p) {
			_, err := os.Stat(p)
			out[p] = fmt.Sprint(err == nil)
		}
	}
	for _, k := range written {
		out[k.Path], _ = readTrimmed(k.Path)
	}
	return out
}

func compare(t *testing.T, before, after map[string]string) {
	t.Helper()
	for k, v := range before {
		if after[k] != v {
			t.Errorf("%s was\n%s\nand is now\n%s", k, v, after[k])
		}
	}
}

func TestNodeLeavesTheMachineAsItWas(t *testing.T) {
	dir := needMachine(t)
	before := machine(dir)
	for round := range 2 {
		began := time.Now()
		n, err := Start(t.Context(), testConfig(dir))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: started in %s", round, time.Since(began))
		socket := filepath.Join(dir, "run", "containerd.sock")
		checkImage(t, socket, PauseImage)
		if mounts, _ := os.ReadFile("/proc/self/mountinfo"); string(mounts) != before["mounts"] {
			t.Error("the box's mounts are seen outside of it")
		}
		runPods(t, socket)
		during := machine(dir)
		for _, k := range []string{"links", "cgroups", "processes", "/var/lib/kubelet"} {
			if during[k] == before[k] {
				t.Errorf("%s: the comparison sees no node while one runs", k)
			}
		}
		if !strings.Contains(during["cgroups"], "/kubepods/podpod0/") {
			t.Errorf("no pod among the node's cgroups:\n%s", during["cgroups"])
		}
		began = time.Now()
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		t.Logf("round %d: stopped in %s", round, time.Since(began))
		compare(t, before, machine(dir))
	}
}

// A node whose program is killed ends by itself; one whose box is killed too
// leaves everything behind. Cleanup copes with both.
func TestCleanupAfterKill(t *testing.T) {
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprintf("box too %t", both), func(t *testing.T) {
			dir := needMachine(t)
			before := machine(dir)
			owner := startOwner(t, dir)
			runPods(t, filepath.Join(dir, "run", "containerd.sock"))
			s, err := readState(dir)
			if err != nil || s == nil || !s.Box.alive() {
				t.Fatalf("no living box on record: %+v, %v", s, err)
			}
			if both {
				if err := unix.Kill(s.Box.PID, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			_ = owner.Process.Kill()
			_ = owner.Wait()
			if both {
				_ = unix.Kill(s.Box.PID, unix.SIGKILL)
			} else {
				for end := time.Now().Add(20 * time.Second); s.Box.alive() && time.Now().Before(end); {
					time.Sleep(50 * time.Millisecond)
				}
				if s.Box.alive() {
					t.Error("the box goes on without its owner")
				}
			}
			if err := Cleanup(dir); err != nil {
				t.Error(err)
			}
			compare(t, before, machine(dir))
		})
	}
}

func TestCleanupSparesARecycledNumber(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	dir := t.TempDir()
	s := state{Box: process{PID: sleep.Process.Pid, Start: "1"}}
	if err := s.save(dir); err != nil {
		t.Fatal(err)
	}
	if err := Cleanup(dir); err != nil {
		t.Fatal(err)
	}
	if p, err := processOf(sleep.Process.Pid); err != nil || !p.alive() {
		t.Error("a process that is not the box was killed")
	}
	if s, err := readState(dir); s != nil || err != nil {
		t.Errorf("the record is still there: %+v, %v", s, err)
	}
}

func TestStartThatIsCanceledLeavesNothing(t *testing.T) {
	dir := needMachine(t)
	before := machine(dir)
	for _, after := range []time.Duration{0, 150 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		n, err := Start(ctx, testConfig(dir))
		cancel()
		if err == nil {
			t.Errorf("after %s: no error", after)
			n.Stop()
		}
		compare(t, before, machine(dir))
	}
}

func TestFreeRange(t *testing.T) {
	if err := freeRange("127.0.0.0/16"); err == nil {
		t.Error("the range of loopback is free")
	}
	if err := freeRange("203.0.113.0/24"); err != nil {
		t.Error(err)
	}
}

func TestBoxThatIsKilledIsReported(t *testing.T) {
	dir := needMachine(t)
	before := machine(dir)
	n, err := Start(t.Context(), testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	runPods(t, filepath.Join(dir, "run", "containerd.sock"))
	if err := n.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := n.Wait(); err == nil {
		t.Error("the end of the box is no error")
	}
	compare(t, before, machine(dir))
	if err := n.Stop(); err == nil {
		t.Error("Stop hides that the node had failed")
	}
}

func TestContainerdIsStartedAgain(t *testing.T) {
	dir := needMachine(t)
	n, err := Start(t.Context(), testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	socket := filepath.Join(dir, "run", "containerd.sock")
	runPods(t, socket)
	pid := childNamed(t, n.cmd.Process.Pid, "containerd")
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(firstPause / 2)
	if err := awaitRuntime(t.Context(), socket); err != nil {
		t.Fatal(err)
	}
	client := criClient(t, socket)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		list, err := client.ListContainers(t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}})
		if err == nil && len(list.Containers) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the containers did not outlive containerd: %v, %v", list, err)
		}
	}
}

func childNamed(t *testing.T, parent int, name string) int {
	t.Helper()
	for _, pid := range pidsIn(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent)) {
		if comm, _ := readTrimmed(fmt.Sprintf("/proc/%d/comm", pid)); comm == name {
			return pid
		}
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, f := range tasks {
		for _, pid := range pidsIn(f) {
			if comm, _ := readTrimmed(fmt.Sprintf("/proc/%d/comm", pid)); comm == name {
				return pid
			}
		}
	}
	t.Fatalf("process %d has no child %s", parent, name)
	return 0
}

func startOwner(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	owner := exec.Command(os.Args[0], "test-owner", dir)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(out, answer); err != nil || string(answer) != "ready" {
		rest, _ := io.ReadAll(out)
		t.Fatalf("the node did not start: %s%s", answer, rest)
	}
	return owner
}

func checkImage(t *testing.T, socket, ref string) {
	t.Helper()
	client, err := containerd.New(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	image, err := client.GetImage(namespaces.WithNamespace(t.Context(), imageNamespace), ref)
	if err != nil {
		t.Fatal(err)
	}
	if image.Labels()["io.cri-containerd.pinned"] != "pinned" {
		t.Errorf("%s is not pinned: %v", ref, image.Labels())
	}
}

func criClient(t *testing.T, socket string) cri.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return cri.NewRuntimeServiceClient(conn)
}

// runPods runs node_exporter with an address of its own and, at once, in the
// network of the machine, and asks the first for its metrics.
func runPods(t *testing.T, socket string) {
	t.Helper()
	if _, err := os.Stat("../../bin/node_exporter"); err != nil {
		t.Skip("bin/node_exporter is not built")
	}
	client := criClient(t, socket)
	var ips [2]string
	var wg sync.WaitGroup
	for i, mode := range []cri.NamespaceMode{cri.NamespaceMode_POD, cri.NamespaceMode_NODE} {
		wg.Go(func() {
			ip, err := runPod(t.Context(), client, fmt.Sprintf("pod%d", i), mode)
			if err != nil {
				t.Error(err)
			}
			ips[i] = ip
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if !strings.HasPrefix(ips[0], "10.42.99.") {
		t.Fatalf("the pod has address %q", ips[0])
	}
	var err error
	for range 50 {
		var resp *http.Response
		if resp, err = http.Get("http://" + ips[0] + ":19100/metrics"); err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !bytes.Contains(body, []byte("node_cpu_seconds_total")) {
				t.Errorf("no metrics in %d bytes", len(body))
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error(err)
}

func runPod(ctx context.Context, client cri.RuntimeServiceClient, name string, network cri.NamespaceMode) (string, error) {
	ns := &cri.NamespaceOption{Network: network, Pid: cri.NamespaceMode_CONTAINER}
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"}, LogDirectory: "/var/log/pods/" + name,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod" + name, SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: ns}},
	}
	sandbox, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod})
	if err != nil {
		return "", fmt.Errorf("run the pod %s: %w", name, err)
	}
	c, err := client.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox.PodSandboxId, SandboxConfig: pod, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "exporter"}, Image: &cri.ImageSpec{Image: NodeExporterImage}, LogPath: "exporter.log",
		Args: []string{"--web.listen-address=:19100"}, Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: ns}, Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 100 << 20}},
	}})
	if err != nil {
		return "", fmt.Errorf("create a container in %s: %w", name, err)
	}
	if _, err := client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		return "", fmt.Errorf("start a container in %s: %w", name, err)
	}
	status, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox.PodSandboxId})
	if err != nil {
		return "", err
	}
	return status.Status.GetNetwork().GetIp(), nil
}

func TestHierarchyOptions(t *testing.T) {
	for in, want := range map[string]string{
		"rw,memory":                           "memory",
		"rw,cpu,cpuacct":                      "cpu,cpuacct",
		"rw,xattr,name=systemd":               "none,name=systemd",
		"ro,cpuset,noprefix,release_agent=/x": "cpuset,noprefix",
	} {
		if got := hierarchyOptions(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestMissingDirs(t *testing.T) {
	dir := t.TempDir()
	want := []string{dir + "/a", dir + "/a/b"}
	if got := missingDirs(dir + "/a/b"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
