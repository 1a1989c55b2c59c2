package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted tree of cgroups.
type hierarchy struct {
	root    string // what of the tree is mounted
	target  string // where
	options string // "memory", "name=systemd", ...; "" for version 2
	v2      bool
}

// hierarchies are the trees that this process can see.
func hierarchies() ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []hierarchy
	for lines := bufio.NewScanner(f); lines.Scan(); {
		mount, super, _ := strings.Cut(lines.Text(), " - ")
		m, s := strings.Fields(mount), strings.Fields(super)
		if len(m) < 5 || len(s) < 3 || s[0] != "cgroup" && s[0] != "cgroup2" {
			continue
		}
		h := hierarchy{root: m[3], target: m[4], v2: s[0] == "cgroup2"}
		if !h.v2 {
			h.options = hierarchyOptions(s[2])
		}
		out = append(out, h)
	}
	if len(out) == 0 {
		return nil, errors.New("no cgroup file system is mounted")
	}
	return out, nil
}

// hierarchyOptions keeps of a mount's options those that name the tree.
func hierarchyOptions(super string) string {
	var keep []string
	for _, o := range strings.Split(super, ",") {
		switch {
		case o == "rw", o == "ro", o == "xattr", o == "clone_children", strings.HasPrefix(o, "release_agent="):
		case strings.HasPrefix(o, "name="):
			keep = append(keep, "none", o)
		default:
			keep = append(keep, o)
		}
	}
	return strings.Join(keep, ",")
}

// own is the directory of this process in a tree.
func (h hierarchy) own() string {
	raw, _ := os.ReadFile("/proc/self/cgroup")
	for _, line := range strings.Split(string(raw), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 || h.v2 != (f[1] == "") {
			continue
		}
		if !h.v2 && !slices.Contains(strings.Split(h.options, ","), strings.Split(f[1], ",")[0]) {
			continue
		}
		if rel, err := filepath.Rel(h.root, f[2]); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return filepath.Join(h.target, rel)
		}
	}
	return h.target
}

// cgroupDirs says where a box's cgroups go. In version 1 they are below this
// process's own, whose limits then hold for the node too. In version 2 a group that
// holds processes cannot hand out controllers, so there they are at the top.
func cgroupDirs(name string) ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, h := range all {
		parent := h.own()
		if h.v2 && h.controllers() != "" {
			parent = h.target
		}
		out = append(out, filepath.Join(parent, name))
	}
	return out, nil
}

func (h hierarchy) controllers() string {
	s, _ := readTrimmed(filepath.Join(h.target, "cgroup.controllers"))
	return s
}

// makeCgroups creates a box's cgroups; note is called before a controller is
// turned on that was not.
func makeCgroups(dirs []string, note func(controller string) error) error {
	for _, d := range dirs {
		if err := enableControllers(filepath.Dir(d), note); err != nil {
			return err
		}
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("create a cgroup: %w", err)
		}
		// A cpuset of version 1 starts empty and then takes no process.
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if now, err := readTrimmed(filepath.Join(d, f)); err != nil || now != "" {
				continue
			}
			v, err := readTrimmed(filepath.Join(filepath.Dir(d), f))
			if err == nil && v != "" {
				err = os.WriteFile(filepath.Join(d, f), []byte(v), 0o644)
			}
			if err != nil {
				return fmt.Errorf("set %s of %s: %w", f, d, err)
			}
		}
	}
	return nil
}

// enableControllers hands the controllers of a version 2 group to its children.
func enableControllers(dir string, note func(string) error) error {
	have, err := readTrimmed(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil // version 1
	}
	file := filepath.Join(dir, "cgroup.subtree_control")
	on, err := readTrimmed(file)
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(have) {
		if slices.Contains(strings.Fields(on), c) {
			continue
		}
		if err := note(c); err != nil {
			return err
		}
		err := os.WriteFile(file, []byte("+"+c), 0o644)
		if err != nil && slices.Contains([]string{"cpu", "memory", "pids"}, c) {
			return fmt.Errorf("turn on the cgroup controller %s in %s (it must hold no process itself): %w", c, dir, err)
		}
	}
	return nil
}

// enterCgroups moves this process.
func enterCgroups(dirs []string) error {
	for _, d := range dirs {
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("enter the cgroup %s: %w", d, err)
		}
	}
	return nil
}

// killAll kills whatever is in a box's cgroups until nothing is, except for this
// process itself.
func killAll(dirs []string, limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		left := 0
		for _, d := range dirs {
			left += killTree(d)
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d processes in %s would not end", left, dirs[0])
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// killTree returns how many processes it has found.
func killTree(dir string) int {
	found := 0
	_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil
		}
		procs := filepath.Join(p, "cgroup.procs")
		for _, pid := range pidsIn(procs) {
			if pid == os.Getpid() || pid == 0 {
				continue
			}
			found++
			killMember(pid, procs)
		}
		return nil
	})
	return found
}

// killMember kills a process if, once held fast, it is still in the group.
func killMember(pid int, procs string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if slices.Contains(pidsIn(procs), pid) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

func pidsIn(file string) []int {
	raw, _ := os.ReadFile(file)
	var out []int
	for _, f := range strings.Fields(string(raw)) {
		if n, err := strconv.Atoi(f); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// removeCgroups removes directories from the bottom up. The kernel takes a moment
// to let go of a group whose last process has just ended.
func removeCgroups(dirs []string, limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		var errs []error
		for _, root := range dirs {
			var tree []string
			_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					tree = append(tree, p)
				}
				return nil
			})
			for _, d := range slices.Backward(tree) {
				if err := unix.Rmdir(d); err != nil && err != unix.ENOENT {
					errs = append(errs, fmt.Errorf("remove the cgroup %s: %w", d, err))
				}
			}
		}
		if len(errs) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(errs...)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
