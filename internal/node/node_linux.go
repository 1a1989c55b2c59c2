package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	readyLimit = 90 * time.Second
	stopLimit  = 45 * time.Second // pods, kubelet and containerd together
)

// Node is a running node.
type Node struct {
	cfg   Config
	facts facts
	state *state
	cmd   *exec.Cmd
	life  io.Closer // the box ends itself when this closes, also when this process dies

	ready    chan struct{}
	stopOnce sync.Once
	stopping chan struct{}
	done     chan struct{}
	err      error // once done is closed
}

// Start cleans up after a run that died, and starts the node. It returns when
// containerd answers, the images are there and the kubelet has been started; the
// node is then on its way to join. ctx bounds only the start.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if err := Cleanup(cfg.DataDir); err != nil {
		return nil, err
	}
	if err := Supported(); err != nil {
		return nil, err
	}
	if err := Programs(cfg.BinDir); err != nil {
		return nil, err
	}
	if _, err := os.Stat("/sys/class/net/" + bridge); err == nil {
		return nil, fmt.Errorf("a network link %s exists already: another node may run here", bridge)
	}
	n := &Node{cfg: cfg, ready: make(chan struct{}), stopping: make(chan struct{}), done: make(chan struct{})}
	if err := n.prepare(); err != nil {
		return nil, errors.Join(err, Cleanup(cfg.DataDir))
	}
	if err := n.launch(); err != nil {
		return nil, errors.Join(err, Cleanup(cfg.DataDir))
	}
	limit := time.NewTimer(readyLimit)
	defer limit.Stop()
	select {
	case <-n.ready:
		return n, nil
	case <-n.done:
		return nil, fmt.Errorf("start the node: %w (see %s)", n.err, cfg.LogDir)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), n.Stop())
	case <-limit.C:
		return nil, errors.Join(fmt.Errorf("start the node: not ready after %s (see %s)", readyLimit, cfg.LogDir), n.Stop())
	}
}

// SetPodCIDR says what pods without hostNetwork get addresses from, where
// Config.PodCIDR did not. The node is not Ready before.
func (n *Node) SetPodCIDR(cidr string) error {
	if err := errors.Join(checkPodCIDR(cidr), freeRange(cidr)); err != nil {
		return err
	}
	c := n.cfg
	c.PodCIDR = cidr
	return writeCNIConfig(c, n.facts)
}

// prepare writes the node's files, and makes on the machine what a box needs.
func (n *Node) prepare() error {
	c := n.cfg
	if c.PodCIDR != "" {
		if err := freeRange(c.PodCIDR); err != nil {
			return err
		}
	}
	f, err := lookAround(c)
	if err != nil {
		return err
	}
	n.facts = f
	if !f.nft {
		c.logf("no program nft: pods that do not use the host's network have no host ports and reach only this machine")
	}
	if !f.seccomp {
		c.logf("runc is built without seccomp: pods with the seccomp profile RuntimeDefault will not start (tools/build.sh needs libseccomp's header)")
	}
	if err := writeFiles(c, f); err != nil {
		return err
	}
	archives, err := StandardImages(c.BinDir, c.dir("images"))
	if err != nil {
		return err
	}
	if n.state, err = observe(c); err != nil {
		return err
	}
	if err := n.state.save(c.DataDir); err != nil {
		return err
	}
	for _, d := range n.state.Dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	err = makeCgroups(n.state.Cgroups, func(controller string) error {
		n.state.Enabled = append(n.state.Enabled, controller)
		return n.state.save(c.DataDir)
	})
	if err != nil {
		return err
	}
	return boxSpec{
		Cgroups: n.state.Cgroups, Mounts: c.mounts(), BinDir: c.BinDir, LogDir: c.LogDir,
		ContainerdConfig: c.dir("containerd.toml"), Images: append(archives, c.Images...),
		Kubelet: c.kubelet(f), Snapshotter: f.snapshotter,
	}.save(c.dir("box.json"))
}

// kubelet is the whole command of the kubelet, or nothing.
func (c Config) kubelet(f facts) []string {
	if len(c.KubeletCommand) == 0 {
		return nil
	}
	return append(append([]string(nil), c.KubeletCommand...), kubeletArgs(c, f)...)
}

// launch starts the box.
func (n *Node) launch() error {
	argv := append(append([]string(nil), n.cfg.BoxCommand...), n.cfg.dir("box.json"))
	n.cmd = exec.Command(argv[0], argv[1:]...)
	n.cmd.Stderr = n.cfg.Log
	// A group of its own: an interrupt on the terminal is for us to pass on.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	life, err := n.cmd.StdinPipe()
	if err != nil {
		return err
	}
	events, err := n.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := n.cmd.Start(); err != nil {
		return fmt.Errorf("start the box: %w", err)
	}
	n.life = life
	if n.state.Box, err = processOf(n.cmd.Process.Pid); err == nil {
		err = n.state.save(n.cfg.DataDir)
	}
	if err != nil {
		return errors.Join(err, n.cmd.Process.Kill(), n.cmd.Wait())
	}
	go n.watch(events)
	return nil
}

// watch follows the box to its end and then takes back what it has changed.
func (n *Node) watch(events io.Reader) {
	var failure error
	for lines := bufio.NewScanner(events); lines.Scan(); {
		var e boxEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch {
		case e.Ready:
			close(n.ready)
		case e.Error != "":
			failure = errors.New(e.Error)
		case e.Log != "":
			n.cfg.logf("%s", e.Log)
		}
	}
	err := n.cmd.Wait()
	if failure != nil {
		err = failure
	}
	select {
	case <-n.stopping:
	default:
		if err == nil {
			err = errors.New("the node's box has ended")
		}
	}
	n.err = errors.Join(err, n.state.undo(n.cfg.DataDir))
	close(n.done)
}

// Wait returns when the node has ended and been cleaned up after: nil after Stop.
func (n *Node) Wait() error {
	<-n.done
	return n.err
}

// Stop ends the kubelet, the pods and containerd in this order, and leaves the
// machine as it was. The images and the node's identity stay in its directory.
func (n *Node) Stop() error {
	n.stopOnce.Do(func() {
		close(n.stopping)
		_ = n.life.Close()
		select {
		case <-n.done:
		case <-time.After(stopLimit):
			n.cfg.logf("the node did not end in %s; killing it", stopLimit)
			_ = n.cmd.Process.Kill()
		}
	})
	return n.Wait()
}
