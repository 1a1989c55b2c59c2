package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	schedapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedoptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// startScheduler runs upstream's scheduler for all pods but those that
// Config.PlacedElsewhere takes.
func (s *Server) startScheduler(ctx context.Context, kubeconfig string) error {
	file, err := s.schedulerConfig(kubeconfig)
	if err != nil {
		return err
	}
	opts := schedoptions.NewOptions()
	flags := pflag.NewFlagSet("kube-scheduler", pflag.ContinueOnError)
	for _, f := range opts.Flags.FlagSets {
		flags.AddFlagSet(f)
	}
	if err := flags.Parse([]string{
		"--config=" + file, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig, "--secure-port=0",
	}); err != nil {
		return fmt.Errorf("configure the scheduler: %w", err)
	}
	cc, sch, err := schedapp.Setup(ctx, opts, schedapp.WithPlugin(elsewherePlugin, func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return elsewhere{s.cfg.PlacedElsewhere}, nil
	}))
	if err != nil {
		return fmt.Errorf("configure the scheduler: %w", err)
	}
	go func() { s.failed("scheduler", schedapp.Run(ctx, cc, sch)) }()
	return nil
}

// schedulerConfig writes the file that adds the plugin to the default profile;
// flags cannot.
func (s *Server) schedulerConfig(kubeconfig string) (string, error) {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"leaderElection":   map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{"kubeconfig": kubeconfig, "qps": 5000, "burst": 10000},
		"profiles": []any{map[string]any{"schedulerName": corev1.DefaultSchedulerName,
			"plugins": map[string]any{"preEnqueue": map[string]any{"enabled": []any{map[string]any{"name": elsewherePlugin}}}}}},
	})
	if err != nil {
		return "", err
	}
	file := filepath.Join(s.cfg.DataDir, "scheduler.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return "", fmt.Errorf("configure the scheduler: %w", err)
	}
	return file, nil
}

const elsewherePlugin = "RollcallPlacedElsewhere"

// elsewhere keeps pods that others place out of the scheduler's queue. What they
// are promised (nominatedNodeName) it still respects.
type elsewhere struct{ others func(*corev1.Pod) bool }

var (
	_ fwk.PreEnqueuePlugin  = elsewhere{}
	_ fwk.EnqueueExtensions = elsewhere{}
)

// Name is the plugin's.
func (elsewhere) Name() string { return elsewherePlugin }

// PreEnqueue holds a pod back that others place.
func (e elsewhere) PreEnqueue(_ context.Context, p *corev1.Pod) *fwk.Status {
	if e.others != nil && e.others(p) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "placed on the node it is pinned to")
	}
	return nil
}

// EventsToRegister names no event: none makes a pod the scheduler's that was not.
// Without it every event would go through all pods that are held back.
func (elsewhere) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}
