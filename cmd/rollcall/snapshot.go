package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/internal/controlplane"
)

func newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Save the cluster to a file, or restore it from one"}
	cmd.AddCommand(newSnapshotSaveCommand(), newSnapshotRestoreCommand())
	return cmd
}

func newSnapshotSaveCommand() *cobra.Command {
	var dir string
	var force bool
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Save all objects and keys of the cluster, running or not", Args: cobra.ExactArgs(1),
		Long:    "Save all objects and keys of the cluster, running or not, to one file.\n\nThe file holds the cluster's private keys and Secrets: keep it as safe as those.",
		Example: "  rollcall snapshot save /backup/monday.tar",
		RunE: func(cmd *cobra.Command, args []string) error {
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			if _, err := os.Stat(args[0]); err == nil && !force {
				return fmt.Errorf("%s exists: choose another name, or say --force", args[0])
			}
			if _, err := os.Stat(filepath.Join(abs, "version")); err != nil {
				return fmt.Errorf("%s holds no cluster: name it with --data-dir", abs)
			}
			release, err := lockDataDir(abs)
			running := errors.Is(err, errInUse)
			if err != nil && !running {
				return err
			}
			if !running {
				defer release()
			}
			if err := controlplane.SaveSnapshot(cmd.Context(), abs, args[0], running); err != nil {
				return err
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "saved %s to %s (%d bytes)\n", abs, args[0], info.Size())
			return nil
		},
	}
	addDataDirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	return cmd
}

func newSnapshotRestoreCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Make a data directory out of a snapshot", Args: cobra.ExactArgs(1),
		Long: "Make a data directory out of a snapshot. The directory must hold no cluster.\n\n" +
			"Objects and keys are as they were when the snapshot was taken; rollcall up goes\non from there, and nodes that knew the cluster know it again.",
		Example: "  rollcall snapshot restore /backup/monday.tar --data-dir ./restored",
		RunE: func(cmd *cobra.Command, args []string) error {
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			release, err := lockDataDir(abs)
			if err != nil {
				return err
			}
			defer release()
			if err := controlplane.RestoreSnapshot(abs, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored %s into %s\n", args[0], abs)
			return nil
		},
	}
	addDataDirFlag(cmd, &dir)
	return cmd
}
