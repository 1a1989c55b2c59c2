package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Where the parts of a node are inside the box.
const (
	kubeletDir   = "/var/lib/kubelet"
	runtimeDir   = "/run/containerd"
	runtimeSock  = runtimeDir + "/containerd.sock"
	bridge       = "rollcall0"
	cniConfigDir = "/etc/cni/net.d"
)

// facts are what a configuration depends on and only the machine knows.
type facts struct {
	nodeIP      string
	apparmor    bool // the kernel has it on
	sysResource bool // this process may lower an OOM score
	nft         bool // the program is there
	seccomp     bool // runc can filter system calls
	resolvConf  string
	snapshotter string
}

// containerdConfig is the file that containerd is started with. Its state is at
// the standard path, which in the box is a private directory.
func containerdConfig(c Config, f facts) string {
	q := strconv.Quote
	return strings.Join([]string{
		"version = 4",
		"root = " + q(c.dir("containerd")),
		"state = " + q(runtimeDir),
		"temp = " + q(c.dir("tmp")),
		"disabled_plugins = ['io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.erofs', 'io.containerd.internal.v1.tracing', 'io.containerd.tracing.processor.v1.otlp']",
		"[plugins.'io.containerd.server.v1.grpc']",
		"  address = " + q(runtimeSock),
		"[plugins.'io.containerd.server.v1.ttrpc']",
		"  address = " + q(runtimeSock+".ttrpc"),
		"[plugins.'io.containerd.shim.v1.manager']",
		"  socket_dir = " + q(runtimeDir+"/s"),
		"[plugins.'io.containerd.internal.v1.opt']",
		"  path = " + q(c.dir("opt")),
		"[plugins.'io.containerd.nri.v1.nri']",
		"  disable = true",
		"[plugins.'io.containerd.cri.v1.images']",
		"  snapshotter = " + q(f.snapshotter),
		"[plugins.'io.containerd.cri.v1.images'.pinned_images]",
		"  sandbox = " + q(PauseImage),
		"[plugins.'io.containerd.cri.v1.images'.registry]",
		"  config_path = " + q(c.dir("certs.d")),
		"[plugins.'io.containerd.cri.v1.runtime']",
		fmt.Sprintf("  restrict_oom_score_adj = %t", !f.sysResource),
		fmt.Sprintf("  disable_apparmor = %t", !f.apparmor),
		"  enable_unprivileged_ports = false",
		"  enable_unprivileged_icmp = false",
		"  netns_mounts_under_state_dir = true",
		"  cdi_spec_dirs = []",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd]",
		"  default_runtime_name = 'runc'",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]",
		"  runtime_type = 'io.containerd.runc.v2'",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]",
		"  BinaryName = " + q(filepath.Join(c.BinDir, "runc")),
		"  Root = " + q(runtimeDir+"/runc"),
		"  SystemdCgroup = false",
		"[plugins.'io.containerd.cri.v1.runtime'.cni]",
		"  bin_dirs = [" + q(c.BinDir) + "]",
		"  conf_dir = " + q(cniConfigDir),
		"",
	}, "\n")
}

// cniConfig connects pods over a bridge. Without nft there is no masquerading and
// there are no host ports: pods then reach this machine and each other only.
func cniConfig(c Config, f facts) ([]byte, error) {
	type object = map[string]any
	br := object{
		"type": "bridge", "bridge": bridge, "isGateway": true, "hairpinMode": true,
		"ipam": object{"type": "host-local", "ranges": [][]object{{{"subnet": c.PodCIDR}}}, "routes": []object{{"dst": "0.0.0.0/0"}}},
	}
	plugins := []object{br}
	if f.nft {
		br["ipMasq"], br["ipMasqBackend"] = true, "nftables"
		plugins = append(plugins, object{"type": "portmap", "backend": "nftables", "capabilities": object{"portMappings": true}})
	}
	return json.MarshalIndent(object{"cniVersion": "1.0.0", "name": "rollcall", "plugins": plugins}, "", "  ")
}

const cniConfigFile = "10-rollcall.conflist"

// writeCNIConfig connects pods from now on: containerd watches the directory.
func writeCNIConfig(c Config, f facts) error {
	raw, err := cniConfig(c, f)
	if err != nil {
		return err
	}
	// Within the directory: containerd hears of a file that is renamed there, but not
	// of one that comes from elsewhere. It does not look at this ending.
	part := c.dir("cni-config", cniConfigFile+".part")
	if err := os.WriteFile(part, raw, 0o644); err != nil {
		return err
	}
	return os.Rename(part, c.dir("cni-config", cniConfigFile))
}

// kubeletConfig is the kubelet's configuration file. The thresholds are small: a
// development machine with a nearly full disk must not evict its own agents.
func kubeletConfig(f facts) ([]byte, error) {
	type object = map[string]any
	oomScore := -999
	if !f.sysResource {
		oomScore = 0
	}
	return json.MarshalIndent(object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": f.nodeIP, "port": kubeletPort, "healthzPort": 0, "readOnlyPort": 0,
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": kubeletDir + "/ca.crt"},
		},
		"authorization":      object{"mode": "Webhook"},
		"rotateCertificates": true, "serverTLSBootstrap": false,
		"containerRuntimeEndpoint": "unix://" + runtimeSock,
		"cgroupDriver":             "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
		"oomScoreAdj": oomScore, "makeIPTablesUtilChains": false,
		"resolvConf": f.resolvConf, "clusterDomain": "cluster.local",
		"podLogsDir": "/var/log/pods", "volumePluginDir": kubeletDir + "/volume-plugins",
		"enforceNodeAllocatable":          []string{"pods"},
		"imageGCHighThresholdPercent":     100,
		"evictionHard":                    object{"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%", "imagefs.inodesFree": "1%"},
		"shutdownGracePeriod":             "0s",
		"shutdownGracePeriodCriticalPods": "0s",
	}, "", "  ")
}

// kubeletArgs are the kubelet's flags.
func kubeletArgs(c Config, f facts) []string {
	args := []string{
		"--config=" + kubeletDir + "/config.yaml",
		"--kubeconfig=" + kubeletDir + "/kubeconfig",
		"--bootstrap-kubeconfig=" + kubeletDir + "/bootstrap.kubeconfig",
		"--cert-dir=" + kubeletDir + "/pki",
		"--hostname-override=" + c.Name,
		"--node-ip=" + f.nodeIP,
	}
	if len(c.NodeLabels) > 0 {
		args = append(args, "--node-labels="+labelList(c.NodeLabels))
	}
	return args
}

// bootstrapKubeconfig is what a kubelet without a certificate asks for one with.
func bootstrapKubeconfig(c Config) ([]byte, error) {
	type object = map[string]any
	return json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "bootstrap",
		"clusters": []object{{"name": "rollcall", "cluster": object{"server": c.ServerURL, "certificate-authority": kubeletDir + "/ca.crt"}}},
		"users":    []object{{"name": "bootstrap", "user": object{"token": c.BootstrapToken}}},
		"contexts": []object{{"name": "bootstrap", "context": object{"cluster": "rollcall", "user": "bootstrap"}}},
	}, "", "  ")
}

// writeFiles writes all that containerd and the kubelet read when they start.
func writeFiles(c Config, f facts) error {
	for dir, mode := range map[string]os.FileMode{
		"": 0o700, "kubelet": 0o750, "pods": 0o755, "containers": 0o755, "cni": 0o700, "cni-config": 0o755,
		"run": 0o711, "containerd": 0o711, "opt": 0o711, "certs.d": 0o755, "images": 0o700, "tmp": 0o700,
	} {
		if err := os.MkdirAll(c.dir(dir), mode); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.LogDir, 0o700); err != nil {
		return err
	}
	// One of an earlier run may name a range that is no longer this node's.
	if err := os.RemoveAll(c.dir("cni-config", cniConfigFile)); err != nil {
		return err
	}
	if c.PodCIDR != "" {
		if err := writeCNIConfig(c, f); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.dir("containerd.toml"), []byte(containerdConfig(c, f)), 0o644); err != nil {
		return err
	}
	if len(c.KubeletCommand) == 0 {
		return nil
	}
	return writeKubeletFiles(c, f)
}

func writeKubeletFiles(c Config, f facts) error {
	if err := forgetOtherCluster(c); err != nil {
		return err
	}
	conf, err := kubeletConfig(f)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.dir("kubelet", "config.yaml"), conf, 0o644); err != nil {
		return err
	}
	boot, err := bootstrapKubeconfig(c)
	if err != nil {
		return err
	}
	return os.WriteFile(c.dir("kubelet", "bootstrap.kubeconfig"), boot, 0o600)
}

// forgetOtherCluster removes what the kubelet joined another cluster with: it would
// go on using it, and never be let in.
func forgetOtherCluster(c Config) error {
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return fmt.Errorf("the API's CA file: %w", err)
	}
	cluster := append([]byte(c.Name+" "+c.ServerURL+"\n"), ca...)
	record := c.dir("kubelet", "cluster")
	before, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(before, cluster) {
		for _, old := range []string{"kubeconfig", "pki"} {
			if err := os.RemoveAll(c.dir("kubelet", old)); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile(c.dir("kubelet", "ca.crt"), ca, 0o644); err != nil {
		return err
	}
	return os.WriteFile(record, cluster, 0o600)
}

// labelList writes labels as the kubelet's flag wants them.
func labelList(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ",")
}
