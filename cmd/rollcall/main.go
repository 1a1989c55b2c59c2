// Command rollcall is the whole of Rollcall in one binary: the control plane,
// the engine, the nodes, and the commands for people.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "rollcall:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "rollcall",
		Short:         "One agent on every node, and a reason for every absence",
		SilenceErrors: true, SilenceUsage: true,
	}
	root.AddCommand(newUpCommand(), newServerCommand(), newKubectlCommand(), newImageCommand(), newSnapshotCommand(), newResetCommand(), newVersionCommand())
	root.AddCommand(newNodeCommands()...)
	return root
}
