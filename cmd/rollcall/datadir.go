package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/internal/node"
)

// defaultDataDir is /var/lib/rollcall as root, else a directory under XDG state.
func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/rollcall"
	}
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, _ := os.UserHomeDir()
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "rollcall")
}

func addDataDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data-dir", defaultDataDir(), "where everything is kept")
}

var errInUse = errors.New("is in use by process")

// lockDataDir holds the directory for this process; the kernel gives it back
// when the process ends, however it ends.
func lockDataDir(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w; choose another with --data-dir", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		raw, _ := os.ReadFile(f.Name())
		_ = f.Close()
		return nil, fmt.Errorf("%s %w %s: stop it, or choose another --data-dir", dir, errInUse, strings.TrimSpace(string(raw)))
	}
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(fmt.Sprintln(os.Getpid())), 0)
	return func() { _ = f.Close() }, nil
}

func newResetCommand() *cobra.Command {
	var dir string
	var yes bool
	cmd := &cobra.Command{
		Use: "reset", Short: "Remove the data directory and whatever a run has left on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			return reset(cmd, abs, yes)
		},
	}
	addDataDirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&yes, "yes", false, "remove without asking")
	return cmd
}

func reset(cmd *cobra.Command, dir string, yes bool) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s does not exist: nothing to do\n", dir)
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "version")); err != nil {
		return fmt.Errorf("%s is not a data directory of rollcall (it has no file named version): nothing was removed", dir)
	}
	if !yes {
		return fmt.Errorf("this removes the cluster in %s with all its objects; say --yes to do it", dir)
	}
	release, err := lockDataDir(dir)
	if err != nil {
		return err
	}
	defer release()
	if err := node.Cleanup(nodeDir(dir)); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", dir)
	return nil
}
