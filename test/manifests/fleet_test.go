package manifests

import corev1 "k8s.io/api/core/v1"

// nodeSpec describes one simulated node, in the form that --sim-spec reads.
type nodeSpec struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
	OS     string            `json:"os,omitempty"`
	Arch   string            `json:"arch,omitempty"`

	// cordoned is set through the API once the node is there: the taint alone
	// would be taken off by the node lifecycle controller.
	cordoned bool
}

const (
	zoneLabel = corev1.LabelTopologyZone
	cpLabel   = "node-role.kubernetes.io/control-plane"
	tierLabel = "fleet.example.com/tier"
)

func taint(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

// fleet differs in everything that manifests select by.
func fleet() []nodeSpec {
	const no, out, prefer = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule
	return []nodeSpec{
		{Name: "cp-a", Labels: map[string]string{cpLabel: "", zoneLabel: "north-a", "kops.k8s.io/kops-controller-pki": ""},
			Taints: []corev1.Taint{taint(cpLabel, "", no)}},
		{Name: "cp-b", Arch: "arm64", Labels: map[string]string{cpLabel: "", "node-role.kubernetes.io/master": "", zoneLabel: "north-b"},
			Taints: []corev1.Taint{taint(cpLabel, "", no), taint("node-role.kubernetes.io/master", "", no)}},
		{Name: "worker-a", Labels: map[string]string{zoneLabel: "north-a", tierLabel: "1", "node.kubernetes.io/instance-type": "m.large",
			"node.kubernetes.io/masq-agent-ds-ready": "true"}},
		{Name: "worker-b", Labels: map[string]string{zoneLabel: "north-b", tierLabel: "3", "eks.amazonaws.com/compute-type": "ec2"}},
		{Name: "worker-c", Arch: "arm64", Labels: map[string]string{zoneLabel: "north-c", tierLabel: "5", "disk.example.com/kind": "nvme"}},
		{Name: "win-2019", OS: "windows", Labels: map[string]string{"node.kubernetes.io/windows-build": "10.0.17763", zoneLabel: "north-a"}},
		{Name: "win-2022", OS: "windows", Labels: map[string]string{"node.kubernetes.io/windows-build": "10.0.20348", zoneLabel: "north-b"},
			Taints: []corev1.Taint{taint("node.kubernetes.io/os", "windows", no)}},
		{Name: "gpu-large", Labels: map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.memory": "81920",
			"feature.node.kubernetes.io/pci-10de.present": "true", "cloud.google.com/gke-accelerator": "nvidia-h100", zoneLabel: "north-a"},
			Taints: []corev1.Taint{taint("nvidia.com/gpu", "present", no)}},
		{Name: "gpu-small", Arch: "arm64", Labels: map[string]string{"nvidia.com/gpu.memory": "16384",
			"feature.node.kubernetes.io/cpu-model.vendor_id": "NVIDIA", zoneLabel: "north-c"}},
		{Name: "spot-a", Labels: map[string]string{"fleet.example.com/lifecycle": "spot", zoneLabel: "north-a", tierLabel: "2"},
			Taints: []corev1.Taint{taint("fleet.example.com/spot", "true", no), taint("fleet.example.com/noisy", "", prefer)}},
		{Name: "resting", Labels: map[string]string{zoneLabel: "north-b", tierLabel: "4"}, cordoned: true},
		{Name: "edge-ship", Arch: "arm64", Labels: map[string]string{"fleet.example.com/site": "ship", "node-role.kubernetes.io/edge": ""},
			Taints: []corev1.Taint{taint("fleet.example.com/uplink", "satellite", out)}},
		{Name: "serverless", Labels: map[string]string{"eks.amazonaws.com/compute-type": "fargate", "type": "virtual-kubelet"},
			Taints: []corev1.Taint{taint("eks.amazonaws.com/compute-type", "fargate", no), taint("virtual-kubelet.io/provider", "aws", no)}},
		{Name: "metal", Labels: map[string]string{"instance.hetzner.cloud/provided-by": "robot", "instance.hetzner.cloud/is-root-server": "true",
			tierLabel: "9"}, Taints: []corev1.Taint{taint("example-key", "", no)}},
		{Name: "newcomer", Labels: map[string]string{zoneLabel: "north-c"},
			Taints: []corev1.Taint{taint("node.cloudprovider.kubernetes.io/uninitialized", "true", no)}},
		{Name: "store", Labels: map[string]string{"storage.example.com/osd": "true", "storage.example.com/disks": "12", zoneLabel: "north-b"},
			Taints: []corev1.Taint{taint("dedicated", "storage", no), taint("dedicated", "storage", out)}},
	}
}
