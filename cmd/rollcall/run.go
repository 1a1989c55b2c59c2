package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/controlplane"
	"github.com/rollcall-dev/rollcall/internal/engine"
	"github.com/rollcall-dev/rollcall/internal/node"
	"github.com/rollcall-dev/rollcall/internal/simnode"
)

// simTermination is how long a simulated pod takes to end.
const simTermination = 200 * time.Millisecond

// settled is how long after `ready` what the start has needed is needed no more.
const settled = 10 * time.Second

// run is one life of the program. Its parts end in the reverse of the order in
// which they start.
type run struct {
	upOptions
	out         io.Writer
	dir, bin    string
	began       time.Time
	interrupted context.Context
	parts       sync.WaitGroup
	failed      chan error // of a part, or of the control plane
}

// up runs until it is interrupted or a part fails.
func up(out io.Writer, o upOptions) error {
	limitMemory()
	r := &run{upOptions: o, out: out, began: time.Now(), failed: make(chan error, 8)}
	specs, err := o.check()
	if err != nil {
		return err
	}
	if r.dir, err = filepath.Abs(o.dataDir); err != nil {
		return err
	}
	if r.bin, err = binDir(); err != nil {
		return err
	}
	release, err := lockDataDir(r.dir)
	if err != nil {
		return err
	}
	defer release()
	// Before the machine is looked at: what a killed run has left is not another's.
	if err := node.Cleanup(nodeDir(r.dir)); err != nil {
		return err
	}
	local, err := wantLocalNode(out, r.localNode, r.bin)
	if err != nil {
		return err
	}
	if err := logToFile(filepath.Join(r.dir, "logs")); err != nil {
		return err
	}
	var stopSignals context.CancelFunc
	r.interrupted, stopSignals = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stopSignals()
	context.AfterFunc(r.interrupted, stopSignals) // a second interrupt ends the program at once
	return r.controlPlane(specs, local)
}

// controlPlane starts it, and all that works against it.
func (r *run) controlPlane(specs []simnode.Spec, local bool) error {
	cfg := controlplane.Config{DataDir: r.dir, Address: r.apiAddress, Lean: r.lean, AuditLog: r.auditLog, Accounts: []controlplane.Account{
		{Namespace: engine.Namespace, Name: engine.Account, Rules: engine.Rules()},
		{Namespace: simnode.Namespace, Name: simnode.Account, Rules: simnode.Rules()},
	}, Warners: warners}
	if r.keeper == keeperRollcall {
		cfg.PlacedElsewhere = engine.Pinned
	} else {
		cfg.DaemonSetController = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	cp, err := controlplane.Start(ctx, cfg)
	if err != nil {
		cancel()
		return err
	}
	defer cp.Stop()
	defer cancel()
	go func() { r.failed <- <-cp.Err() }()
	return r.work(cp, cfg, specs, local)
}

// client reaches the API as an account of this process.
func client(cp *controlplane.Server, account string) (kubernetes.Interface, error) {
	cfg, err := cp.ClientConfig(account)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(cfg)
}

// work starts the engine and the nodes, and waits for the end.
func (r *run) work(cp *controlplane.Server, cfg controlplane.Config, specs []simnode.Spec, local bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer r.parts.Wait()
	defer cancel()
	ready, err := r.startEngine(ctx, cp)
	if err != nil {
		return err
	}
	simClient, err := client(cp, simnode.Account)
	if err != nil {
		return err
	}
	fleet := simnode.New(simnode.Config{Client: simClient, Nodes: specs, ReadyDelay: r.simReadyDelay, TerminationDelay: simTermination,
		Version: version.Get().GitVersion})
	r.part(ctx, "simulated nodes", fleet.Run)
	for _, started := range []<-chan struct{}{ready, fleet.Ready()} {
		select {
		case <-started:
		case err := <-r.failed:
			return err
		case <-r.interrupted.Done():
			return nil
		}
	}
	fmt.Fprintf(r.out, "ready https://%s in %.1f s\n", r.apiAddress, time.Since(r.began).Seconds())
	time.AfterFunc(settled, releaseMemory)
	fmt.Fprintf(r.out, "to use it: kubectl --kubeconfig %s get ds -A   (Ctrl-C ends everything)\n", cfg.AdminKubeconfig())
	r.part(ctx, "apply", func(ctx context.Context) error { return applyFiles(ctx, r.out, r.dir, r.apply) })
	if local {
		stop, err := r.joinThisMachine(ctx, cp, cfg)
		if err != nil {
			return err
		}
		defer stop()
	}
	select {
	case <-r.interrupted.Done():
		fmt.Fprintln(r.out, "stopping")
		return nil
	case err := <-r.failed:
		return err
	}
}

// startEngine starts it, unless upstream's controller keeps the DaemonSets. The
// channel is closed once it works.
func (r *run) startEngine(ctx context.Context, cp *controlplane.Server) (ready <-chan struct{}, err error) {
	if r.keeper != keeperRollcall {
		none := make(chan struct{})
		close(none)
		return none, nil
	}
	api, err := client(cp, engine.Account)
	if err != nil {
		return nil, err
	}
	eng, err := engine.New(api)
	if err != nil {
		return nil, err
	}
	if err := eng.PlacePinned(); err != nil {
		return nil, err
	}
	eng.RegisterMetrics(apiMetrics{})
	r.part(ctx, "engine", eng.Run)
	if r.roll {
		r.part(ctx, "roll call", func(ctx context.Context) error { return watchRoll(ctx, r.out, api, eng) })
	}
	return eng.Synced(), nil
}

// part runs one; its failure ends the program.
func (r *run) part(ctx context.Context, name string, f func(context.Context) error) {
	r.parts.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			r.failed <- fmt.Errorf("%s: %w", name, err)
		}
	})
}

// joinThisMachine makes this machine a node. Where that fails and was not demanded, the
// program goes on without.
func (r *run) joinThisMachine(ctx context.Context, cp *controlplane.Server, cfg controlplane.Config) (stop func(), err error) {
	local, err := startLocalNode(r.interrupted, r.out, cp, cfg, r.bin)
	switch {
	case err == nil:
	case r.interrupted.Err() != nil:
		return func() {}, nil
	case r.localNode == "auto":
		fmt.Fprintf(r.out, "this machine did not become a node: %v\nno real container will run here\n", err)
		return func() {}, nil
	default:
		return nil, err
	}
	following, cancel := context.WithCancel(ctx)
	r.part(following, "this machine's node", local.follow)
	return func() {
		cancel()
		if err := local.stop(); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintf(r.out, "this machine's node: %v\n", err)
		}
	}, nil
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
