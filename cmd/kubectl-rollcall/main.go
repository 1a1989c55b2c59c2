// Command kubectl-rollcall has the commands of Rollcall that read a cluster: a small
// binary that kubectl finds as `kubectl rollcall`. It contains no server and no node.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"github.com/rollcall-dev/rollcall/internal/cli"
)

// rollcallVersion is stamped at build.
var rollcallVersion = "v0.0.0-dev"

func main() {
	err := newCommand().Execute()
	if err != nil && cli.Code(err) == cli.ExitError {
		fmt.Fprintln(os.Stderr, "kubectl-rollcall:", err)
	}
	os.Exit(cli.Code(err))
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl-rollcall", Short: "A reason for every absence, on any cluster", SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl rollcall"},
	}
	root.AddCommand(cli.NewWhyCommand(func() string { return "" }), &cobra.Command{
		Use: "version", Short: "Print the versions of this program and of the Kubernetes libraries it is built on", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "rollcall %s\nkubernetes %s\n", rollcallVersion, version.Get().GitVersion)
		},
	})
	return root
}
