package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cleanup takes back what a run that did not end well has left on the machine. It
// does nothing when there is nothing.
func Cleanup(dataDir string) error {
	s, err := readState(dataDir)
	if s == nil || err != nil {
		return err
	}
	if err := s.undo(dataDir); err != nil {
		return fmt.Errorf("clean up after the node: %w", err)
	}
	return nil
}

// undo goes on after an error; the record is kept for as long as something is left.
func (s *state) undo(dataDir string) error {
	var errs []error
	// The box first: it starts again what ends.
	if s.Box.alive() {
		errs = append(errs, s.Box.kill())
	}
	if len(s.Cgroups) > 0 {
		errs = append(errs, killAll(s.Cgroups, 15*time.Second), removeCgroups(s.Cgroups, 5*time.Second))
	}
	errs = append(errs, s.disableControllers(), removeBridge(s.Bridge), s.removeTables(), s.restoreSysctls())
	// Sockets, leases of addresses, and what containerd keeps of running containers.
	for _, d := range []string{"run", "cni", "tmp"} {
		errs = append(errs, os.RemoveAll(filepath.Join(dataDir, d)))
	}
	for _, d := range slices.Backward(s.Dirs) {
		// Someone else may have begun to use it.
		if err := unix.Rmdir(d); err != nil && err != unix.ENOENT && err != unix.ENOTEMPTY && err != unix.EEXIST {
			errs = append(errs, fmt.Errorf("remove %s: %w", d, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err := os.Remove(stateFile(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// kill ends a process and waits until it has.
func (p process) kill() error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil // gone
	}
	defer unix.Close(fd)
	if !p.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000)
	return err
}

func (s *state) disableControllers() error {
	for _, d := range s.Cgroups {
		file := filepath.Join(filepath.Dir(d), "cgroup.subtree_control")
		for _, c := range s.Enabled {
			if _, err := os.Stat(file); err == nil {
				_ = os.WriteFile(file, []byte("-"+c), 0o644) // someone may use it by now
			}
		}
	}
	return nil
}

func (s *state) restoreSysctls() error {
	var errs []error
	for _, k := range s.Sysctls {
		now, err := readTrimmed(k.Path)
		if err != nil || now == k.Before || now != k.Writes {
			continue // someone else has changed it since
		}
		if err := os.WriteFile(k.Path, []byte(k.Before), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("restore %s: %w", k.Path, err))
		}
	}
	return errors.Join(errs...)
}

// cniTables are the nftables tables that CNI plugins may have made, as "ip NAME".
func cniTables() map[string]bool {
	out := map[string]bool{}
	raw, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		return out
	}
	for _, line := range strings.Split(string(raw), "\n") {
		f := strings.Fields(line)
		if len(f) == 3 && (f[2] == "cni_hostport" || f[2] == "cni_plugins_masquerade") {
			out[f[1]+" "+f[2]] = true
		}
	}
	return out
}

func (s *state) removeTables() error {
	var errs []error
	for t := range cniTables() {
		if s.Tables[t] {
			continue
		}
		family, name, _ := strings.Cut(t, " ")
		if out, err := exec.Command("nft", "delete", "table", family, name).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("delete the nftables table %s: %w: %s", t, err, out))
		}
	}
	return errors.Join(errs...)
}
