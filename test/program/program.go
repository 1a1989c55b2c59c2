package program

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	startLimit   = 2 * time.Minute
	endLimit     = 90 * time.Second
	kubectlLimit = 2 * time.Minute
)

// Program is a running `rollcall up`.
type Program struct {
	t       testing.TB
	Dir     string // of its data
	Address string // of its API
	cmd     *exec.Cmd
	out     output // stdout and stderr
	ended   chan struct{}
	err     error // once ended is closed
}

// Bin is the program under test, as `make build` leaves it, or $ROLLCALL_BIN.
func Bin(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("ROLLCALL_BIN")
	if bin == "" {
		bin = "../../bin/rollcall"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("the program to test: %v; run make build, or set ROLLCALL_BIN", err)
	}
	return bin
}

// FreeAddress is one on which nobody listened a moment ago.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Start starts the program without a real node, unless args say otherwise, and
// waits for its line `ready`.
func Start(t testing.TB, dir string, args ...string) *Program {
	t.Helper()
	p := &Program{t: t, Dir: dir, Address: FreeAddress(t), ended: make(chan struct{})}
	p.cmd = exec.Command(Bin(t), append([]string{"up", "--local-node", "no", "--data-dir", dir, "--api-address", p.Address}, args...)...)
	p.cmd.Stderr = &p.out
	// Not the group of a terminal: its interrupt would end the program beside the test.
	// A test that panics or is killed cleans nothing up: the kernel then ends the program.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, ready := make(chan error), make(chan struct{})
	go p.run(stdout, started, ready)
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", p.cmd.Path, err)
	}
	t.Cleanup(p.end)
	select {
	case <-ready:
	case <-p.ended:
		t.Fatalf("rollcall ended before it was ready: %v\n%s", p.err, p.out.String())
	case <-time.After(startLimit):
		t.Fatalf("rollcall is not ready after %s\n%s", startLimit, p.out.String())
	}
	return p
}

// run starts the program and reads what it prints until it has ended.
func (p *Program) run(stdout io.Reader, started chan<- error, ready chan<- struct{}) {
	runtime.LockOSThread() // to the kernel the program's parent is the thread that started it
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	var once sync.Once
	for lines := bufio.NewScanner(io.TeeReader(stdout, &p.out)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "ready ") {
			once.Do(func() { close(ready) })
		}
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

// end ends what a test has left running, gently, so that a real node's pods end too.
func (p *Program) end() {
	defer func() {
		if p.t.Failed() {
			p.t.Logf("rollcall ended with %v and said:\n%s", p.err, p.out.String())
		}
	}()
	select {
	case <-p.ended:
		return
	default:
	}
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
	case <-time.After(endLimit):
		p.t.Errorf("rollcall (pid %d) did not end within %s of an interrupt:\n%s", p.PID(), endLimit, p.out.String())
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// PID is the program's process number.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Said is all that the program has printed so far.
func (p *Program) Said() string { return p.out.String() }

// Kill ends the program as a power cut would.
func (p *Program) Kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.ended
}

// Interrupt ends the program as Ctrl-C does, and demands a clean end.
func (p *Program) Interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
		if p.err != nil {
			p.t.Fatalf("after an interrupt: %v\n%s", p.err, p.out.String())
		}
	case <-time.After(endLimit):
		p.t.Fatalf("still running %s after an interrupt", endLimit)
	}
}

// Kubectl runs the embedded kubectl and returns all it prints.
func (p *Program) Kubectl(args ...string) string {
	p.t.Helper()
	out, err := p.TryKubectl(args...)
	if err != nil {
		p.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryKubectl does the same and returns the failure.
func (p *Program) TryKubectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), kubectlLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, Bin(p.t), append([]string{"kubectl", "--data-dir", p.Dir}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Config is a way to the API as its administrator, hardly limited.
func (p *Program) Config() *rest.Config {
	p.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(p.Dir, "admin.kubeconfig"))
	if err != nil {
		p.t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 500, 500
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// Client is the administrator's.
func (p *Program) Client() kubernetes.Interface {
	p.t.Helper()
	client, err := kubernetes.NewForConfig(p.Config())
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// Eventually polls until check returns "" or two minutes have passed; what it
// returned last is the failure.
func Eventually(t testing.TB, what string, check func() string) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if last = check(); last == "" {
			return
		}
	}
	t.Fatalf("%s: not after two minutes: %s", what, last)
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
