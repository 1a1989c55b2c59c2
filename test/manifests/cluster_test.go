package manifests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

const startTimeout = 120 * time.Second

// startCluster is the adapter between these tests and the program: all that they
// know of how Rollcall is started stands here. It runs
//
//	$ROLLCALL_BIN up --local-node no --sim-nodes 0 --sim-spec FILE ...
//
// waits for the line that begins with "ready", and ends the process with the test.
func startCluster(t *testing.T, nodes []nodeSpec) *rest.Config {
	t.Helper()
	bin := os.Getenv("ROLLCALL_BIN")
	if bin == "" {
		bin = "../../bin/rollcall"
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("the program to test: %v; run `make build`, or set ROLLCALL_BIN", err)
	}
	tmp := t.TempDir()
	spec, err := yaml.Marshal(nodes)
	if err != nil {
		t.Fatal(err)
	}
	specFile := filepath.Join(tmp, "nodes.yaml")
	if err := os.WriteFile(specFile, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(tmp, "data")
	cmd := exec.Command(bin, "up", "--local-node", "no", "--sim-nodes", "0", "--sim-spec", specFile,
		"--data-dir", data, "--api-address", freeAddress(t))
	var said output
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", bin, err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var once sync.Once
		for lines := bufio.NewScanner(io.TeeReader(stdout, &said)); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "ready") {
				once.Do(func() { close(ready) })
			}
		}
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("rollcall said:\n%s", said.String())
		}
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Errorf("rollcall (pid %d) did not end within 30 s of SIGINT:\n%s", cmd.Process.Pid, said.String())
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("rollcall ended before it was ready:\n%s", said.String())
	case <-time.After(startTimeout):
		t.Fatalf("rollcall was not ready within %v:\n%s", startTimeout, said.String())
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(data, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 500, 500
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// freeAddress is one on which nobody listened a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// output collects what a process prints, from several goroutines.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// settle cordons what is to be cordoned and waits until every node carries the
// taints of its spec and no others: a new node is not ready for a moment.
func settle(ctx context.Context, t *testing.T, client kubernetes.Interface, specs []nodeSpec) []corev1.Node {
	t.Helper()
	for _, s := range specs {
		if !s.cordoned {
			continue
		}
		patch := []byte(`{"spec":{"unschedulable":true}}`)
		if _, err := client.CoreV1().Nodes().Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatalf("cordon %s: %v", s.Name, err)
		}
	}
	var nodes []corev1.Node
	err := poll(ctx, time.Minute, func(ctx context.Context) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		nodes = list.Items
		if len(nodes) != len(specs) {
			return fmt.Errorf("%d nodes, want %d", len(nodes), len(specs))
		}
		for i := range nodes {
			n := &nodes[i]
			at := slices.IndexFunc(specs, func(s nodeSpec) bool { return s.Name == n.Name })
			if at < 0 {
				return fmt.Errorf("the node %s is nobody's", n.Name)
			}
			if have, want := taintTexts(n.Spec.Taints), specs[at].taintTexts(); !slices.Equal(have, want) {
				return fmt.Errorf("node %s has the taints %v, want %v", n.Name, have, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("wait for the fleet: %v", err)
	}
	return nodes
}

func (s nodeSpec) taintTexts() []string {
	taints := slices.Clone(s.Taints)
	if s.cordoned {
		taints = append(taints, taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule))
	}
	return taintTexts(taints)
}

func taintTexts(taints []corev1.Taint) []string {
	var out []string
	for _, t := range taints {
		out = append(out, t.ToString())
	}
	slices.Sort(out)
	return out
}

// poll asks until there is no error; its last error says what was still wrong.
func poll(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", limit, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
