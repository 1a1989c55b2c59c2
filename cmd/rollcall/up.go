package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/internal/simnode"
)

type upOptions struct {
	dataDir, apiAddress, auditLog string
	simSpec, localNode            string
	keeper                        string // who keeps the DaemonSets
	apply                         []string
	simNodes                      int
	simReadyDelay                 time.Duration
	lean, roll                    bool
}

func newUpCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use: "up", Short: "Start the control plane, the engine and the nodes of this machine", Args: cobra.NoArgs,
		Long: "Start the control plane, the engine, this machine as a real node where it can be\n" +
			"one (Linux, root), and simulated nodes; run until interrupted, which ends all of\nit and leaves the machine as it was.\n\n" +
			"DATA_DIR/admin.kubeconfig is for kubectl. Started again on the same directory,\nit goes on where it was, also after kill -9.",
		Example: "  rollcall up --sim-nodes 50 --data-dir ./data --api-address 127.0.0.1:16443\n" +
			"  kubectl --kubeconfig ./data/admin.kubeconfig get ds -A",
		RunE: func(cmd *cobra.Command, _ []string) error { return up(cmd.OutOrStdout(), o) },
	}
	addServerFlags(cmd, &o)
	f := cmd.Flags()
	f.StringVar(&o.localNode, "local-node", "auto", "this machine as a real node: auto (where it can), yes or no")
	f.IntVar(&o.simNodes, "sim-nodes", 0, "how many simulated nodes to run")
	f.StringVar(&o.simSpec, "sim-spec", "", "a YAML list of further simulated nodes: name, labels, taints, os, arch, allocatable")
	f.DurationVar(&o.simReadyDelay, "sim-ready-delay", 500*time.Millisecond, "how long a simulated pod takes to become ready")
	f.StringArrayVar(&o.apply, "apply", nil, "apply this manifest once ready; may be repeated")
	f.BoolVar(&o.roll, "roll", false, "print the roll call, a line for each node whose answer changes")
	return cmd
}

func newServerCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use: "server", Short: "Start the control plane and the engine, without a node", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return up(cmd.OutOrStdout(), o) },
	}
	addServerFlags(cmd, &o)
	return cmd
}

func addServerFlags(cmd *cobra.Command, o *upOptions) {
	addDataDirFlag(cmd, &o.dataDir)
	f := cmd.Flags()
	f.StringVar(&o.apiAddress, "api-address", "127.0.0.1:6443", "where the API listens, as IP:PORT")
	f.BoolVar(&o.lean, "lean", false, "run only the controllers that agents need: an applied Deployment gets no pods")
	f.StringVar(&o.keeper, "daemonset-controller", keeperRollcall, "who keeps the DaemonSets: rollcall, or upstream, whose own controller and scheduler\n"+
		"take over (to compare, or to go back)")
	f.StringVar(&o.auditLog, "audit-log", "", "write an audit log to this file")
}

// The values of --daemonset-controller.
const (
	keeperRollcall = "rollcall"
	keeperUpstream = "upstream"
)

// check says what is wrong with the flags before anything is started.
func (o upOptions) check() ([]simnode.Spec, error) {
	if o.keeper != keeperRollcall && o.keeper != keeperUpstream {
		return nil, fmt.Errorf("--daemonset-controller %q: it is %s or %s", o.keeper, keeperRollcall, keeperUpstream)
	}
	if o.roll && o.keeper != keeperRollcall {
		return nil, fmt.Errorf("--roll: only Rollcall's controller calls the roll, not --daemonset-controller %s", o.keeper)
	}
	for _, file := range o.apply {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("--apply: %w", err)
		}
	}
	return o.simulated()
}

// simulated returns the nodes that the flags ask for.
func (o upOptions) simulated() ([]simnode.Spec, error) {
	if o.simNodes < 0 {
		return nil, fmt.Errorf("--sim-nodes %d: the number must be 0 or more", o.simNodes)
	}
	specs := simnode.Specs(o.simNodes)
	if o.simSpec == "" {
		return specs, nil
	}
	more, err := simnode.ReadSpecs(o.simSpec)
	if err != nil {
		return nil, fmt.Errorf("--sim-spec: %w", err)
	}
	return append(specs, more...), nil
}

// applyFiles applies manifests with the kubectl in this binary.
func applyFiles(ctx context.Context, out io.Writer, dir string, files []string) error {
	for _, file := range files {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, self, "kubectl", "--data-dir", dir, "apply", "-f", file)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "admin.kubeconfig"))
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Run(); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			return fmt.Errorf("apply %s: %w", file, err)
		}
	}
	return nil
}
