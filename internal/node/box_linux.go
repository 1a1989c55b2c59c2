package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"
)

// boxSpec is what a box is told, in a file. It holds no secret.
type boxSpec struct {
	Cgroups          []string    `json:"cgroups"`
	Mounts           []bindMount `json:"mounts"`
	BinDir           string      `json:"binDir"`
	LogDir           string      `json:"logDir"`
	ContainerdConfig string      `json:"containerdConfig"`
	Images           []string    `json:"images"`
	Snapshotter      string      `json:"snapshotter"`
	Kubelet          []string    `json:"kubelet"`
}

type bindMount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// boxEvent is a line that the box prints for the process that started it.
type boxEvent struct {
	Ready bool   `json:"ready,omitempty"`
	Log   string `json:"log,omitempty"`
	Error string `json:"error,omitempty"`
}

// mounts are the private directories that a box sees at the standard paths.
func (c Config) mounts() []bindMount {
	return []bindMount{
		{c.dir("kubelet"), kubeletDir},
		{c.dir("pods"), "/var/log/pods"},
		{c.dir("containers"), "/var/log/containers"},
		{c.dir("cni-config"), cniConfigDir},
		{c.dir("cni"), "/var/lib/cni"},
		{c.dir("run"), runtimeDir},
	}
}

func (s boxSpec) save(file string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o600)
}

const insideFlag = "inside" // no dash: no command line library shall read it

// BoxMain is the process that a node lives in. It is called by the hidden command
// that Config.BoxCommand names, and by nothing else. It ends when its standard
// input does, so that it never outlives the process that started it.
func BoxMain(args []string) error {
	inside := len(args) == 2 && args[0] == insideFlag
	if len(args) != 1 && !inside {
		return errors.New("this command is run by rollcall itself")
	}
	raw, err := os.ReadFile(args[len(args)-1])
	if err != nil {
		return err
	}
	var spec boxSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return err
	}
	b := &box{spec: spec}
	if inside {
		err = b.run()
	} else {
		err = enterBox(spec, args[0])
	}
	if err != nil {
		b.say(boxEvent{Error: err.Error()})
	}
	return err
}

// enterBox moves this process into its cgroups and namespaces and starts it anew
// there: of a program with threads, only the calling one changes namespaces.
func enterBox(spec boxSpec, file string) error {
	if err := enterCgroups(spec.Cgroups); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make mount and cgroup namespaces: %w", err)
	}
	argv := append([]string(nil), os.Args[:len(os.Args)-1]...)
	return unix.Exec(self, append(argv, insideFlag, file), os.Environ())
}

// box is the inside.
type box struct {
	spec boxSpec
	mu   sync.Mutex
}

func (b *box) say(e boxEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	raw, _ := json.Marshal(e)
	_, _ = os.Stdout.Write(append(raw, '\n'))
}

func (b *box) logf(format string, args ...any) { b.say(boxEvent{Log: fmt.Sprintf(format, args...)}) }

// run sets the box up, keeps its processes going until told to stop, and ends them.
func (b *box) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // the reader of our events may die first
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	own, err := setUpBox(b.spec.Mounts)
	if err != nil {
		return fmt.Errorf("set up the box: %w", err)
	}
	defer func() { _ = killAll(own, 10*time.Second) }()

	path := "PATH=" + b.spec.BinDir + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
	runtimeChild, err := startChild(child{
		name: "containerd", log: filepath.Join(b.spec.LogDir, "containerd.log"), env: []string{path}, logf: b.logf,
		argv: []string{filepath.Join(b.spec.BinDir, "containerd"), "--config", b.spec.ContainerdConfig},
	})
	if err != nil {
		return err
	}
	defer runtimeChild.stop(10 * time.Second)
	if err := awaitRuntime(ctx, runtimeSock); err != nil {
		return ignoreCanceled(ctx, err)
	}
	if _, err := importImages(ctx, runtimeSock, b.spec.Snapshotter, b.spec.Images); err != nil {
		return ignoreCanceled(ctx, err)
	}
	defer func() {
		if err := endPods(runtimeSock, 25*time.Second); err != nil {
			b.logf("end the pods: %v", err)
		}
	}()
	if len(b.spec.Kubelet) > 0 {
		kubelet, err := startChild(child{name: "kubelet", log: filepath.Join(b.spec.LogDir, "kubelet.log"), env: []string{path}, logf: b.logf, argv: b.spec.Kubelet})
		if err != nil {
			return err
		}
		defer kubelet.stop(5 * time.Second)
	}
	b.say(boxEvent{Ready: true})
	<-ctx.Done()
	return nil
}

// ignoreCanceled drops an error that comes of having been told to stop.
func ignoreCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// setUpBox makes the mounts. It returns this process's cgroups as they are seen
// from inside, which is at the top of each hierarchy.
func setUpBox(mounts []bindMount) ([]string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("part from the machine's mounts: %w", err)
	}
	own, err := remountCgroups()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND, ""); err != nil {
			return nil, fmt.Errorf("mount %s over %s: %w", m.Source, m.Target, err)
		}
	}
	// Volumes that pods mount must reach the kubelet and back.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return nil, fmt.Errorf("share mounts with pods: %w", err)
	}
	return own, nil
}

// remountCgroups replaces the machine's cgroup file systems by ones whose top is
// the box.
func remountCgroups() ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var own []string
	for _, h := range all {
		if err := unix.Unmount(h.target, unix.MNT_DETACH); err != nil {
			return nil, fmt.Errorf("unmount %s: %w", h.target, err)
		}
		kind := "cgroup"
		if h.v2 {
			kind = "cgroup2"
		}
		if err := unix.Mount(kind, h.target, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.options); err != nil {
			return nil, fmt.Errorf("mount %s with %q: %w", h.target, h.options, err)
		}
		if h.v2 && h.controllers() != "" {
			if err := stepDown(h.target); err != nil {
				return nil, err
			}
		}
		own = append(own, h.target)
	}
	return own, nil
}

// stepDown makes room: a version 2 group that holds processes cannot hand its
// controllers to the groups of pods.
func stepDown(top string) error {
	dir := filepath.Join(top, "box")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := enterCgroups([]string{dir}); err != nil {
		return err
	}
	return enableControllers(top, func(string) error { return nil })
}

// awaitRuntime waits until containerd answers.
func awaitRuntime(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		if _, last = os.Stat(socket); last == nil {
			if last = askRuntime(ctx, socket); last == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("containerd does not answer: %w", last)
}

func askRuntime(ctx context.Context, socket string) error {
	client, err := containerd.New(socket, containerd.WithTimeout(5*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Version(ctx)
	return err
}
