package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// state is what a run has changed, or is about to change, on the machine.
type state struct {
	Box     process         `json:"box"`
	Cgroups []string        `json:"cgroups"` // the box's directory in each hierarchy
	Enabled []string        `json:"enabled"` // controllers that were turned on for them
	Dirs    []string        `json:"dirs"`    // mount points that did not exist, parents first
	Bridge  string          `json:"bridge"`
	Tables  map[string]bool `json:"tables"` // of nftables, that were there before
	Sysctls []sysctl        `json:"sysctls"`
}

// sysctl is a kernel setting that the kubelet or a CNI plugin writes.
type sysctl struct {
	Path   string `json:"path"`
	Before string `json:"before"`
	Writes string `json:"writes"`
}

// process is a process number together with what tells it from a later process
// of the same number.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

var written = []sysctl{
	{Path: "/proc/sys/vm/overcommit_memory", Writes: "1"},
	{Path: "/proc/sys/vm/panic_on_oom", Writes: "0"},
	{Path: "/proc/sys/kernel/panic", Writes: "10"},
	{Path: "/proc/sys/kernel/panic_on_oops", Writes: "1"},
	{Path: "/proc/sys/kernel/keys/root_maxkeys", Writes: "1000000"},
	{Path: "/proc/sys/kernel/keys/root_maxbytes", Writes: "25000000"},
	{Path: "/proc/sys/net/ipv4/ip_forward", Writes: "1"},
}

func stateFile(dataDir string) string { return filepath.Join(dataDir, "state.json") }

// readState returns nil without an error when no run has left anything.
func readState(dataDir string) (*state, error) {
	raw, err := os.ReadFile(stateFile(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w", stateFile(dataDir), err)
	}
	return &s, nil
}

func (s *state) save(dataDir string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	part := stateFile(dataDir) + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", part, err)
	}
	return os.Rename(part, stateFile(dataDir))
}

// observe notes how the machine is before a run.
func observe(c Config) (*state, error) {
	s := &state{Bridge: bridge, Tables: cniTables()}
	cgroups, err := cgroupDirs("rollcall-" + c.Name)
	if err != nil {
		return nil, err
	}
	for _, d := range cgroups {
		if _, err := os.Stat(d); err == nil {
			return nil, fmt.Errorf("%s exists: another node of this name runs here, or has left it behind", d)
		}
	}
	s.Cgroups = cgroups
	for _, m := range c.mounts() {
		s.Dirs = append(s.Dirs, missingDirs(m.Target)...)
	}
	for _, k := range written {
		if v, err := readTrimmed(k.Path); err == nil {
			s.Sysctls = append(s.Sysctls, sysctl{Path: k.Path, Before: v, Writes: k.Writes})
		}
	}
	return s, nil
}

// missingDirs are the parts of a path that do not exist, parents first.
func missingDirs(path string) []string {
	var out []string
	for p := path; p != "/"; p = filepath.Dir(p) {
		if _, err := os.Lstat(p); err == nil {
			break
		}
		out = append([]string{p}, out...)
	}
	return out
}

// processOf identifies a running process.
func processOf(pid int) (process, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	// The second field is a name in parentheses and may hold anything.
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	return process{PID: pid, Start: fields[19]}, nil
}

func (p process) alive() bool {
	now, err := processOf(p.PID)
	return p.PID > 0 && err == nil && now == p
}

func readTrimmed(path string) (string, error) {
	raw, err := os.ReadFile(path)
	return strings.TrimSpace(string(raw)), err
}
