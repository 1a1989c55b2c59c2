package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const kubeletPort = 10250

// Supported says why this machine cannot be a node; nil if it can.
func Supported() error {
	if os.Geteuid() != 0 {
		return errors.New("a node needs root: its containers do")
	}
	for _, ns := range []string{"mnt", "cgroup", "net", "pid", "ipc", "uts"} {
		if _, err := os.Stat("/proc/self/ns/" + ns); err != nil {
			return fmt.Errorf("the kernel has no %s namespaces", ns)
		}
	}
	for c, name := range map[int]string{unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN", unix.CAP_NET_ADMIN: "CAP_NET_ADMIN"} {
		if !hasCapability(c) {
			return fmt.Errorf("this process is root without %s", name)
		}
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !hasController(all, c) {
			return fmt.Errorf("no cgroup controller %s is to be had", c)
		}
	}
	if _, err := exec.LookPath("mount"); err != nil {
		return errors.New("there is no program mount, with which the kubelet mounts volumes")
	}
	return otherKubelet()
}

// Programs says which of the programs that a node runs is missing in a directory.
func Programs(binDir string) error {
	for _, bin := range []string{"containerd", "containerd-shim-runc-v2", "runc", "bridge", "host-local", "loopback", "portmap", "pause"} {
		if _, err := os.Stat(filepath.Join(binDir, bin)); err != nil {
			return fmt.Errorf("the program %s, which a node runs, is not in %s: make build makes it", bin, binDir)
		}
	}
	return nil
}

func hasController(all []hierarchy, name string) bool {
	for _, h := range all {
		sep := ","
		list := h.options
		if h.v2 {
			sep, list = " ", h.controllers()
		}
		for _, c := range strings.Split(list, sep) {
			if c == name {
				return true
			}
		}
	}
	return false
}

// otherKubelet reports a kubelet that this machine belongs to already.
func otherKubelet() error {
	procs, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, p := range procs {
		if name, _ := readTrimmed(p); name == "kubelet" {
			return fmt.Errorf("another kubelet runs here as process %s", filepath.Base(filepath.Dir(p)))
		}
	}
	for _, f := range []string{"/etc/kubernetes/kubelet.conf", kubeletDir + "/kubeconfig", kubeletDir + "/config.yaml", kubeletDir + "/pki"} {
		if _, err := os.Stat(f); err == nil {
			return fmt.Errorf("this machine is a node of another cluster: %s exists", f)
		}
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", kubeletPort))
	if err != nil {
		return fmt.Errorf("the kubelet's port is taken, so another kubelet may run here: %w", err)
	}
	return l.Close()
}

func hasCapability(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}

// lookAround gathers what the configurations depend on.
func lookAround(c Config) (facts, error) {
	f := facts{nodeIP: c.NodeIP, sysResource: hasCapability(unix.CAP_SYS_RESOURCE)}
	aa, _ := readTrimmed("/sys/module/apparmor/parameters/enabled")
	_, err := exec.LookPath("apparmor_parser")
	f.apparmor = aa == "Y" && err == nil
	_, err = exec.LookPath("nft")
	f.nft = err == nil
	f.snapshotter = overlay
	if onOverlay(c.DataDir) {
		f.snapshotter = native
	}
	f.seccomp = runcFilters(filepath.Join(c.BinDir, "runc"))
	for _, r := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		if _, err := os.Stat(r); err == nil {
			f.resolvConf = r // the last: systemd's own names the servers beyond its stub
		}
	}
	if f.nodeIP == "" {
		if f.nodeIP, err = machineIP(); err != nil {
			return f, err
		}
	}
	if len(f.nodeIP) > 0 && net.ParseIP(f.nodeIP) == nil {
		return f, fmt.Errorf("node address %q is no IP address", f.nodeIP)
	}
	return f, nil
}

// onOverlay reports whether a directory, or the nearest parent that exists, is in
// an overlay, as in most containers.
func onOverlay(dir string) bool {
	var fs unix.Statfs_t
	for unix.Statfs(dir, &fs) == unix.ENOENT && dir != "/" {
		dir = filepath.Dir(dir)
	}
	return fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// freeRange fails if the machine is in a network that pods would get addresses of.
func freeRange(cidr string) error {
	_, pods, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (pods.Contains(n.IP) || n.Contains(pods.IP)) {
			return fmt.Errorf("pod addresses %s: the machine has %s already; choose another range", cidr, n)
		}
	}
	return nil
}

// runcFilters reports whether runc was built with seccomp.
func runcFilters(runc string) bool {
	raw, err := exec.Command(runc, "features").Output()
	if err != nil {
		return false
	}
	var f struct {
		Linux struct {
			Seccomp struct{ Enabled bool }
		}
	}
	return json.Unmarshal(raw, &f) == nil && f.Linux.Seccomp.Enabled
}

// machineIP is the IPv4 address of the interface with the default route, or else
// the first that is up and not loopback.
func machineIP() (string, error) {
	preferred := defaultInterface()
	links, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	found := ""
	for _, l := range links {
		if l.Flags&net.FlagUp == 0 || l.Flags&net.FlagLoopback != 0 || l.Name == bridge {
			continue
		}
		addrs, _ := l.Addrs()
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok || n.IP.To4() == nil || !n.IP.IsGlobalUnicast() {
				continue
			}
			if l.Name == preferred {
				return n.IP.String(), nil
			}
			if found == "" {
				found = n.IP.String()
			}
		}
	}
	if found == "" {
		return "", errors.New("this machine has no IPv4 address but loopback; a node needs one, give it with the node address")
	}
	return found, nil
}

func defaultInterface() string {
	raw, _ := os.ReadFile("/proc/net/route")
	for _, line := range strings.Split(string(raw), "\n") {
		if f := strings.Fields(line); len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}
