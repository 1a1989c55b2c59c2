package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// program is a running `rollcall up`.
type program struct {
	t       *testing.T
	dir     string
	address string
	cmd     *exec.Cmd
	out     *bytes.Buffer
	done    chan error
}

// bin is the program under test, as `make build` leaves it.
func bin(t *testing.T) string {
	t.Helper()
	p, err := filepath.Abs("../../bin/rollcall")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("%v: run make build first", err)
	}
	return p
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the program and waits for its line `ready`. It is killed when the
// test ends, however it ends.
func start(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	p := &program{t: t, dir: dir, address: freeAddress(t), out: &bytes.Buffer{}, done: make(chan error, 1)}
	args = append([]string{"up", "--data-dir", dir, "--api-address", p.address}, args...)
	p.cmd = exec.Command(bin(t), args...)
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("rollcall said on stderr:\n%s", p.out)
		}
	})
	ready := make(chan string, 1)
	go func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			if strings.HasPrefix(s.Text(), "ready ") {
				ready <- s.Text()
			}
		}
		p.done <- p.cmd.Wait()
	}()
	select {
	case line := <-ready:
		t.Log(line)
	case err := <-p.done:
		t.Fatalf("rollcall ended before it was ready: %v\n%s", err, p.out)
	case <-time.After(2 * time.Minute):
		t.Fatalf("rollcall is not ready after two minutes\n%s", p.out)
	}
	return p
}

// kill ends the program as a power cut would.
func (p *program) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.done
}

// interrupt ends the program as Ctrl-C does, and demands a clean end.
func (p *program) interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			p.t.Fatalf("after an interrupt: %v\n%s", err, p.out)
		}
	case <-time.After(time.Minute):
		p.t.Fatal("still running a minute after an interrupt")
	}
}

// kubectl runs the embedded kubectl and returns all it prints.
func (p *program) kubectl(args ...string) string {
	p.t.Helper()
	out, err := p.tryKubectl(args...)
	if err != nil {
		p.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p *program) tryKubectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin(p.t), append([]string{"kubectl", "--data-dir", p.dir}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *program) client() kubernetes.Interface {
	p.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(p.dir, "admin.kubeconfig"))
	if err != nil {
		p.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// eventually polls until check returns "" or two minutes have passed; what it
// returned last is the failure.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if last = check(); last == "" {
			return
		}
	}
	t.Fatalf("%s: not after two minutes: %s", what, last)
}

func unlike[T comparable](got, want T) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("got %v, want %v", got, want)
}
