package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	kcmapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

// PodCIDR is where pods get their addresses.
const PodCIDR = "10.42.0.0/16"

// startControllers runs upstream's controllers, its DaemonSet controller only where
// it is asked for.
func (s *Server) startControllers(ctx context.Context, keys pki, kubeconfig string) error {
	opts, err := kcmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("configure the controllers: %w", err)
	}
	known, off, aliases := kcmapp.KnownControllers(), kcmapp.ControllersDisabledByDefault(), kcmapp.ControllerAliases()
	flags := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
	for _, f := range opts.Flags(known, off, aliases).FlagSets {
		flags.AddFlagSet(f)
	}
	args := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials=true",
		// The default is a directory of the machine, which it would create.
		"--flex-volume-plugin-dir=" + filepath.Join(s.cfg.DataDir, "volume-plugins"),
		"--service-account-private-key-file=" + keys.path("service-account.key"),
		"--root-ca-file=" + keys.path("ca.crt"),
		"--cluster-signing-cert-file=" + keys.path("ca.crt"), "--cluster-signing-key-file=" + keys.path("ca.key"),
		"--allocate-node-cidrs=true", "--cluster-cidr=" + PodCIDR, "--service-cluster-ip-range=" + ServiceCIDR,
	}
	args = append(args, "--controllers="+strings.Join(s.controllers(), ","))
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("configure the controllers: %w", err)
	}
	c, err := opts.Config(ctx, known, off, aliases)
	if err != nil {
		return fmt.Errorf("configure the controllers: %w", err)
	}
	// What was built from the kubeconfig file is replaced by the way through memory.
	c.Kubeconfig = s.api.client(s.ids.controllers)
	if c.Client, err = clientset.NewForConfig(restclient.AddUserAgent(c.Kubeconfig, "kube-controller-manager")); err != nil {
		return err
	}
	c.ComponentConfig.Generic.ControllerStartInterval.Duration = 0
	c.ComponentConfig.Generic.MinResyncPeriod.Duration = 12 * time.Hour
	go func() { s.failed("controllers", kcmapp.Run(ctx, c.Complete())) }()
	return nil
}

// controllers are the names and patterns of those that run.
func (s *Server) controllers() []string {
	const own = "daemonset-controller"
	list := []string{"*", "bootstrap-signer-controller", "token-cleaner-controller"}
	if s.cfg.Lean {
		list = slices.Clone(leanControllers)
	}
	if s.cfg.DaemonSetController {
		return append(list, own)
	}
	return append(list, "-"+own)
}
