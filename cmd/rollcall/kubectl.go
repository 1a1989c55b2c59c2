package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd"
)

// newKubectlCommand embeds kubectl. Without a kubeconfig of the user's choice it
// speaks to the control plane of the data directory.
func newKubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl [--data-dir DIR] ...", Short: "Run kubectl against this control plane", DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			dir, args := takeDataDir(args)
			config := ownKubeconfig()
			if dir != "" {
				config = filepath.Join(dir, "admin.kubeconfig")
				if _, err := os.Stat(config); err != nil {
					return fmt.Errorf("--data-dir %s: no control plane has run there (%w); start one with rollcall up --data-dir %s", dir, err, dir)
				}
			}
			if config != "" {
				if err := os.Setenv("KUBECONFIG", config); err != nil {
					return err
				}
			}
			os.Args = append([]string{"kubectl"}, args...)
			streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
			k := cmd.NewKubectlCommand(cmd.KubectlOptions{
				PluginHandler: cmd.NewDefaultPluginHandler([]string{"kubectl"}), Arguments: os.Args, IOStreams: streams,
				ConfigFlags: genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag(),
			})
			k.SetArgs(args)
			return k.Execute()
		},
	}
}

// takeDataDir takes a leading --data-dir from kubectl's arguments; "" without one.
func takeDataDir(args []string) (string, []string) {
	if len(args) > 1 && args[0] == "--data-dir" {
		return args[1], args[2:]
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "--data-dir=") {
		return strings.TrimPrefix(args[0], "--data-dir="), args[1:]
	}
	return "", args
}

// ownKubeconfig is that of the default data directory, unless the user has chosen
// another.
func ownKubeconfig() string {
	admin := filepath.Join(defaultDataDir(), "admin.kubeconfig")
	if _, err := os.Stat(admin); err != nil || os.Getenv("KUBECONFIG") != "" {
		return ""
	}
	return admin
}
