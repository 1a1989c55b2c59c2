package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/controlplane"
)

type upOptions struct {
	dataDir, apiAddress, localNode, apply, auditLog string
	simNodes                                        int
	lean                                            bool
}

func newUpCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use: "up", Short: "Start the control plane, the engine and the nodes of this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return up(cmd.OutOrStdout(), o) },
	}
	addServerFlags(cmd, &o)
	return cmd
}

func newServerCommand() *cobra.Command {
	o := upOptions{localNode: "no"}
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

func up(out io.Writer, o upOptions) error {
	start := time.Now()
	dir, err := filepath.Abs(o.dataDir)
	if err != nil {
		return err
	}
	release, err := lockDataDir(dir)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := logToFile(filepath.Join(dir, "logs")); err != nil {
		return err
	}
	cp, err := controlplane.Start(ctx, controlplane.Config{DataDir: dir, Address: o.apiAddress, Lean: o.lean, AuditLog: o.auditLog})
	if err != nil {
		return err
	}
	defer cp.Stop()
	fmt.Fprintf(out, "ready https://%s in %.1f s\n", o.apiAddress, time.Since(start).Seconds())
	select {
	case <-ctx.Done():
		return nil
	case err := <-cp.Err():
		return err
	}
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
