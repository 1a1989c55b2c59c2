package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/internal/node"
)

func newImageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Images of this machine's node"}
	var dir string
	load := &cobra.Command{
		Use: "import FILE...", Short: "Bring images from archives into this machine's node, under the names they carry", Args: cobra.MinimumNArgs(1),
		Long: "Bring images from archives (docker save, podman save, OCI) into the node that\n`rollcall up` runs on this machine. They are pinned: the kubelet never removes them.",
		Example: "  docker save registry.example/agent:v1 -o agent.tar\n" +
			"  rollcall image import agent.tar",
		RunE: func(cmd *cobra.Command, files []string) error {
			for _, f := range files {
				if _, err := os.Stat(f); err != nil {
					return err // before any is imported
				}
			}
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			names, err := node.ImportImages(cmd.Context(), nodeDir(abs), files)
			for _, n := range names {
				fmt.Fprintf(cmd.OutOrStdout(), "imported %s\n", n)
			}
			return err
		},
	}
	addDataDirFlag(load, &dir)
	cmd.AddCommand(load)
	return cmd
}
