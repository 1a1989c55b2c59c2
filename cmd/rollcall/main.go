// Command rollcall is the whole of Rollcall in one binary: the control plane,
// the engine, the nodes, and the commands for people.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/internal/cli"
)

func main() {
	err := newCommand().Execute()
	if err != nil && cli.Code(err) == cli.ExitError {
		fmt.Fprintln(os.Stderr, "rollcall:", err)
	}
	os.Exit(cli.Code(err))
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "rollcall",
		Short:         "One agent on every node, and a reason for every absence",
		SilenceErrors: true, SilenceUsage: true,
	}
	root.AddCommand(newUpCommand(), newServerCommand(), newKubectlCommand(), cli.NewWhyCommand(ownKubeconfig),
		newImageCommand(), newSnapshotCommand(), newResetCommand(), newVersionCommand())
	root.AddCommand(newNodeCommands()...)
	return root
}
