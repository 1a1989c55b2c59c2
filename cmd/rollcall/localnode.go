package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rollcall-dev/rollcall/internal/controlplane"
	"github.com/rollcall-dev/rollcall/internal/node"
	"github.com/rollcall-dev/rollcall/internal/node/kubelet"
)

// tokenLife is how long a node has to join.
const tokenLife = time.Hour

// nodeDir is the local node's part of the data directory.
func nodeDir(dir string) string { return filepath.Join(dir, "node") }

// wantLocalNode decides, by the flag and by what the machine can do, whether it
// becomes a node. Where it does not, it says plainly that no real container runs.
func wantLocalNode(out io.Writer, flag, binDir string) (bool, error) {
	switch flag {
	case "", "no":
		return false, nil
	case "auto", "yes":
	default:
		return false, fmt.Errorf("--local-node %q: write auto, yes or no", flag)
	}
	err := node.Supported()
	if err == nil {
		err = node.Programs(binDir)
	}
	if err == nil {
		return true, nil
	}
	if flag == "yes" {
		return false, fmt.Errorf("--local-node yes: %w; put that right, or use --local-node no with --sim-nodes N", err)
	}
	fmt.Fprintf(out, "this machine is not a node: %v\nno real container will run here, only simulated nodes (--sim-nodes N)\n", err)
	return false, nil
}

// localNode is this machine as a node.
type localNode struct {
	name   string
	node   *node.Node
	client kubernetes.Interface
	out    io.Writer
	began  time.Time
	revoke func(context.Context) error
}

// startLocalNode starts containerd and the kubelet; the machine then joins by
// itself, as follow tells.
func startLocalNode(ctx context.Context, out io.Writer, cp *controlplane.Server, cpConfig controlplane.Config, binDir string) (*localNode, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &localNode{name: strings.ToLower(host), out: out, began: time.Now()}
	cfg, err := clientcmd.BuildConfigFromFlags("", cpConfig.AdminKubeconfig())
	if err != nil {
		return nil, err
	}
	if l.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	token, revoke, err := cp.BootstrapToken(ctx, "the machine of the control plane", tokenLife)
	if err != nil {
		return nil, err
	}
	l.revoke = revoke
	fmt.Fprintf(out, "node %s: starting containerd and the kubelet on this machine\n", l.name)
	l.node, err = node.Start(ctx, node.Config{
		Name: l.name, DataDir: nodeDir(cpConfig.DataDir), BinDir: binDir, LogDir: filepath.Join(cpConfig.DataDir, "logs"),
		ServerURL: cpConfig.URL(), CAFile: cpConfig.CAFile(), BootstrapToken: token,
		KubeletCommand: []string{self, "kubelet"},
		Log:            prefixed{out, "node " + l.name + ": "},
	})
	if err != nil {
		return nil, errors.Join(err, revoke(ctx))
	}
	return l, nil
}

// follow gives the node its range of pod addresses once the Node has one, and says
// when it is Ready. It returns when the node has failed or ctx has ended.
func (l *localNode) follow(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- l.node.Wait() }()
	var cidr string
	var ready bool
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-time.After(200 * time.Millisecond):
		}
		if ready {
			continue
		}
		n, err := l.client.CoreV1().Nodes().Get(ctx, l.name, metav1.GetOptions{})
		if err != nil {
			continue // it has not joined yet
		}
		if cidr == "" && n.Spec.PodCIDR != "" {
			if err := l.node.SetPodCIDR(n.Spec.PodCIDR); err != nil {
				return err
			}
			cidr = n.Spec.PodCIDR
		}
		// Ready of an earlier run does not count.
		if c := readyCondition(n); c != nil && c.Status == corev1.ConditionTrue && cidr != "" && c.LastHeartbeatTime.After(l.began.Add(-time.Second)) {
			ready = true
			fmt.Fprintf(l.out, "node %s: Ready after %.1f s, kubelet %s\n", l.name, time.Since(l.began).Seconds(), n.Status.NodeInfo.KubeletVersion)
			if err := l.revoke(ctx); err != nil {
				return err
			}
		}
	}
}

func readyCondition(n *corev1.Node) *corev1.NodeCondition {
	for i, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// stop ends the pods of this machine and leaves it as it was.
func (l *localNode) stop() error {
	fmt.Fprintf(l.out, "node %s: ending its pods\n", l.name)
	return l.node.Stop()
}

// prefixed puts a prefix before each line; each write is one line.
type prefixed struct {
	out    io.Writer
	prefix string
}

func (p prefixed) Write(line []byte) (int, error) {
	if _, err := io.WriteString(p.out, p.prefix+string(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// binDir is where this program lies, and those that a node runs beside it.
func binDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	return filepath.Dir(self), nil
}

// newNodeCommands are those that this program starts itself with: they are
// processes of their own because namespaces, and the kubelet's end, are a process's.
func newNodeCommands() []*cobra.Command {
	return []*cobra.Command{
		{Use: "node-box", Hidden: true, DisableFlagParsing: true, RunE: func(_ *cobra.Command, args []string) error { return node.BoxMain(args) }},
		{Use: "kubelet", Hidden: true, DisableFlagParsing: true, Run: func(_ *cobra.Command, args []string) { os.Exit(kubelet.Main(args)) }},
	}
}
