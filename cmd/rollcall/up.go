package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/controlplane"
	"github.com/rollcall-dev/rollcall/internal/engine"
	"github.com/rollcall-dev/rollcall/internal/simnode"
)

type upOptions struct {
	dataDir, apiAddress, auditLog string
	simSpec, localNode            string
	apply                         []string
	simNodes                      int
	simReadyDelay                 time.Duration
	lean, roll                    bool
}

func newUpCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use: "up", Short: "Start the control plane, the engine and the nodes of this machine", Args: cobra.NoArgs,
		Long: "Start the control plane, the engine and simulated nodes, and run until interrupted.\n\n" +
			"DATA_DIR/admin.kubeconfig is for kubectl. Started again on the same directory,\nit goes on where it was.",
		Example: "  rollcall up --sim-nodes 50 --data-dir ./data --api-address 127.0.0.1:16443\n" +
			"  kubectl --kubeconfig ./data/admin.kubeconfig get ds -A",
		RunE: func(cmd *cobra.Command, _ []string) error { return up(cmd.OutOrStdout(), o) },
	}
	addServerFlags(cmd, &o)
	f := cmd.Flags()
	f.StringVar(&o.localNode, "local-node", "auto", "this machine as a real node: auto, yes or no (yes is not supported yet)")
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
	f.StringVar(&o.auditLog, "audit-log", "", "write an audit log to this file")
}

// checkLocalNode says plainly that no real container will run.
func (o upOptions) checkLocalNode(out io.Writer) error {
	switch o.localNode {
	case "", "no":
		return nil
	case "auto":
		fmt.Fprintln(out, "this machine is not a node (not supported yet): no real container will run, only simulated nodes")
		return nil
	case "yes":
		return errors.New("--local-node yes: this machine cannot be a node yet; use --sim-nodes N")
	default:
		return fmt.Errorf("--local-node %q: write auto, yes or no", o.localNode)
	}
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

// up runs until it is interrupted or a part fails. Parts end in the reverse of
// the order in which they started.
func up(out io.Writer, o upOptions) error {
	start := time.Now()
	if err := o.checkLocalNode(out); err != nil {
		return err
	}
	specs, err := o.simulated()
	if err != nil {
		return err
	}
	for _, file := range o.apply {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("--apply: %w", err)
		}
	}
	dir, err := filepath.Abs(o.dataDir)
	if err != nil {
		return err
	}
	release, err := lockDataDir(dir)
	if err != nil {
		return err
	}
	defer release()
	if err := logToFile(filepath.Join(dir, "logs")); err != nil {
		return err
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()

	// The control plane.
	account := controlplane.ServiceAccount(engine.Namespace, engine.Account)
	cpCtx, stopCP := context.WithCancel(context.Background())
	cp, err := controlplane.Start(cpCtx, controlplane.Config{DataDir: dir, Address: o.apiAddress, Lean: o.lean, AuditLog: o.auditLog,
		Extra: []controlplane.Identity{account}})
	if err != nil {
		stopCP()
		return err
	}
	defer cp.Stop()
	defer stopCP()
	admin, err := kubernetes.NewForConfig(cp.Loopback())
	if err != nil {
		return err
	}
	failed := make(chan error, 4)
	run := func(name string, f func(context.Context) error) {
		parts.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}

	// The engine, as its own service account.
	if err := engine.Grant(ctx, admin); err != nil {
		return err
	}
	cfg, err := cp.ClientConfig(account.User)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	eng, err := engine.New(client)
	if err != nil {
		return err
	}
	run("engine", eng.Run)

	// The simulated nodes.
	fleet := simnode.New(simnode.Config{Client: admin, Nodes: specs, ReadyDelay: o.simReadyDelay, TerminationDelay: 200 * time.Millisecond,
		Version: version.Get().GitVersion})
	run("simulated nodes", fleet.Run)

	for _, ready := range []<-chan struct{}{eng.Synced(), fleet.Ready()} {
		select {
		case <-ready:
		case err := <-failed:
			cancel()
			parts.Wait()
			return err
		case <-interrupted.Done():
			cancel()
			parts.Wait()
			return nil
		}
	}
	fmt.Fprintf(out, "ready https://%s in %.1f s\n", o.apiAddress, time.Since(start).Seconds())
	if o.roll {
		run("roll call", func(ctx context.Context) error { return watchRoll(ctx, out, client, eng) })
	}
	err = applyFiles(ctx, out, dir, o.apply)
	if err == nil {
		select {
		case <-interrupted.Done():
		case err = <-cp.Err():
		case err = <-failed:
		}
	}
	cancel()
	parts.Wait()
	return err
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

// logToFile sends the log of all components to one file.
func logToFile(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "rollcall.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{"-logtostderr=false", "-alsologtostderr=false", "-stderrthreshold=FATAL", "-one_output=true"}); err != nil {
		return err
	}
	klog.SetOutput(f)
	return nil
}
