package fit

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod makes one of a priority that asks for CPU, pinned to node n or bound to it.
func pod(name, cpu string, priority int32, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Priority: &priority,
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}}}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu)
	}
	p.Spec.Tolerations = DaemonTolerations(&p.Spec)
	PinToNode(&p.Spec, "n")
	for _, c := range change {
		c(p)
	}
	return p
}

func bound(p *corev1.Pod) { p.Spec.NodeName = "n" }

func port(n int32, ip string, protocol corev1.Protocol) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: n, HostPort: n, HostIP: ip, Protocol: protocol})
	}
}

func asks(name corev1.ResourceName, q string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(q) }
}

func room(pods ...*corev1.Pod) Room {
	return Room{Pods: pods, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "z", corev1.LabelHostname: "n"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi"),
			"ephemeral-storage": resource.MustParse("10Gi"), "pods": resource.MustParse("3"), "example.com/card": resource.MustParse("1")}}}}
}

func TestObstaclesNameWhatIsAskedFreeAndHeldByWhom(t *testing.T) {
	phase := func(ph corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = ph } }
	tainted := func(r Room, taint corev1.Taint) Room { r.Node.Spec.Taints = []corev1.Taint{taint}; return r }
	going := func(p *corev1.Pod) { at := metav1.Now(); p.DeletionTimestamp = &at }
	resized := func(p *corev1.Pod) { // asks for more than the kubelet has granted yet
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("500m")
		granted := corev1.ResourceList{"cpu": resource.MustParse("1500m")}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: granted, Resources: &corev1.ResourceRequirements{Requests: granted}}}
	}
	for name, c := range map[string]struct {
		room   Room
		pod    *corev1.Pod
		want   string // "" where the pod fits
		curing bool
	}{
		"an empty node":            {room(), pod("a", "2", 0), "", false},
		"too little cpu left":      {room(pod("b", "1750m", 0, bound)), pod("a", "700m", 0), "Insufficient cpu: asks 700m, free 250m of 2; held by ns/b (1750m)", true},
		"more than the node has":   {room(), pod("a", "3", 0), "Insufficient cpu: asks 3, free 2 of 2", false},
		"no request needs no room": {room(pod("b", "2", 0, bound)), pod("a", "", 0), "", false},
		"a pod that ended":         {room(pod("b", "2", 0, bound, phase(corev1.PodFailed))), pod("a", "1", 0), "", false},
		"a pod that is going":      {room(pod("b", "2", 0, bound, going)), pod("a", "1", 0), "Insufficient cpu: asks 1, free 0 of 2; held by ns/b (2)", true},
		"a pod that was resized":   {room(pod("b", "", 0, bound, resized)), pod("a", "1", 0), "Insufficient cpu: asks 1, free 500m of 2; held by ns/b (1500m)", true},
		"a promised place":         {room(pod("b", "2", 0)), pod("a", "1", 0), "Insufficient cpu: asks 1, free 0 of 2; held by ns/b (2, promised)", true},
		"ephemeral storage":        {room(), pod("a", "", 0, asks("ephemeral-storage", "11Gi")), "Insufficient ephemeral-storage: asks 11Gi, free 10Gi of 10Gi", false},
		"an extended resource": {room(pod("b", "", 0, bound, asks("example.com/card", "1"))), pod("a", "", 0, asks("example.com/card", "1")),
			"Insufficient example.com/card: asks 1, free 0 of 1; held by ns/b (1)", true},
		"one the node lacks": {room(), pod("a", "", 0, asks("example.com/other", "1")), "Insufficient example.com/other: asks 1, free 0 of 0", false},
		"pod slots": {room(pod("b", "", 0, bound), pod("c", "", 0, bound), pod("d", "", 0, bound)), pod("a", "", 0),
			"Too many pods: 3 of 3 slots are taken", true},
		"a host port":                {room(pod("b", "", 0, bound, port(9100, "", "TCP"))), pod("a", "", 0, port(9100, "", "")), "port 9100 held by ns/b", true},
		"on any address":             {room(pod("b", "", 0, bound, port(53, "0.0.0.0", "UDP"))), pod("a", "", 0, port(53, "127.0.0.1", "UDP")), "port 127.0.0.1:53/UDP held by ns/b", true},
		"on another address":         {room(pod("b", "", 0, bound, port(53, "10.0.0.1", "UDP"))), pod("a", "", 0, port(53, "127.0.0.1", "UDP")), "", false},
		"of another protocol":        {room(pod("b", "", 0, bound, port(53, "", "TCP"))), pod("a", "", 0, port(53, "", "UDP")), "", false},
		"a taint":                    {tainted(room(), corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}), pod("a", "", 0), "taint k=v:NoSchedule is not tolerated", false},
		"a taint that only prefers":  {tainted(room(), corev1.Taint{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}), pod("a", "", 0), "", false},
		"a cordon daemons tolerate":  {func() Room { r := room(); r.Node.Spec.Unschedulable = true; return r }(), pod("a", "", 0), "", false},
		"a selector that fits none":  {room(), pod("a", "", 0, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "y"} }), "the pod's nodeSelector or affinity does not match the node", false},
		"two obstacles, both spoken": {room(pod("b", "2", 0, bound, port(80, "", ""))), pod("a", "1", 0, port(80, "", "")), "port 80 held by ns/b|Insufficient cpu: asks 1, free 0 of 2; held by ns/b (2)", true},
	} {
		var got []string
		curable := false
		for _, o := range c.room.Obstacles(c.pod) {
			got, curable = append(got, o.Message), o.Curable
		}
		if strings.Join(got, "|") != c.want || curable != c.curing {
			t.Errorf("%s: %q, curable %v; want %q, %v", name, got, curable, c.want, c.curing)
		}
	}
}

func TestAnotherPodsAntiAffinityKeepsAPodAway(t *testing.T) {
	hater := pod("hater", "", 0, bound)
	hater.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}}
	hater.Spec.NodeName = "other"
	r := room()
	r.Averse = []*corev1.Pod{hater}
	zone := "z"
	r.NodeOf = func(string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"zone": zone}}}
	}
	if got := r.Obstacles(pod("a", "", 0)); len(got) != 1 || got[0].Code != PodAntiAffinity {
		t.Errorf("in the same zone: %+v", got)
	}
	if got := r.Obstacles(pod("b", "", 0)); len(got) != 0 {
		t.Errorf("another pod: %+v", got)
	}
	zone = "y"
	if got := r.Obstacles(pod("a", "", 0)); len(got) != 0 {
		t.Errorf("in another zone: %+v", got)
	}
}

func TestVictimsAreFewUnimportantAndSparedByBudgets(t *testing.T) {
	names := func(pods []*corev1.Pod) string {
		var out []string
		for _, p := range pods {
			out = append(out, p.Name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	never := corev1.PreemptNever
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "low1"}}}}
	low := []*corev1.Pod{pod("low1", "1", 1, bound), pod("low2", "1", 1, bound)}
	for name, c := range map[string]struct {
		room    Room
		pod     *corev1.Pod
		budgets []*policyv1.PodDisruptionBudget
		want    string
		none    string
	}{
		"one is enough":             {room: room(low...), pod: pod("a", "1", 10), want: "low2"},
		"both":                      {room: room(low...), pod: pod("a", "2", 10), want: "low1 low2"},
		"the less important":        {room: room(pod("mid", "1", 5, bound), pod("low", "1", 1, bound)), pod: pod("a", "1", 10), want: "low"},
		"a budget spares":           {room: room(low[1], low[0]), pod: pod("a", "1", 10), budgets: []*policyv1.PodDisruptionBudget{budget}, want: "low2"},
		"a budget alone spares not": {room: room(low[0], pod("high", "1", 20, bound)), pod: pod("a", "1", 10), budgets: []*policyv1.PodDisruptionBudget{budget}, want: "low1"},
		"equal priority":            {room: room(pod("b", "2", 10, bound)), pod: pod("a", "1", 10), none: "No preemption victims found for incoming pod"},
		"not enough":                {room: room(pod("low", "1", 1, bound), pod("high", "1", 20, bound)), pod: pod("a", "2", 10), none: "No preemption victims found for incoming pod"},
		"never":                     {room: room(low...), pod: pod("a", "1", 10, func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never }), none: "not eligible due to preemptionPolicy=Never."},
		"a port":                    {room: room(pod("low", "", 1, bound, port(80, "", "")), pod("low3", "", 1, bound)), pod: pod("a", "", 10, port(80, "", "")), want: "low"},
	} {
		got, none := c.room.Victims(c.pod, c.budgets)
		if names(got) != c.want || none != c.none {
			t.Errorf("%s: %q, %q; want %q, %q", name, names(got), none, c.want, c.none)
		}
	}
}

// TestPinnedIsWhatTheDaemonSetControllerMakes holds the partition between the two
// schedulers: what is not fully understood goes to upstream's.
func TestPinnedIsWhatTheDaemonSetControllerMakes(t *testing.T) {
	always := corev1.PodAffinityTerm{TopologyKey: "zone"}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a daemon pod":              {func(*corev1.Pod) {}, true},
		"plain volumes":             {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), true},
		"a selector beside the pin": {func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, true},
		"preferred pod affinity": {func(p *corev1.Pod) {
			p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{}}}
		}, true},
		"bound already":        {bound, false},
		"another scheduler's":  {func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }, false},
		"a gate":               {func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }, false},
		"a claim":              {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}), false},
		"an inline CSI volume": {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}), false},
		"an ephemeral claim":   {volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), false},
		"a resource claim":     {func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r"}} }, false},
		"required anti-affinity": {func(p *corev1.Pod) {
			p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{always}}
		}, false},
		"required affinity": {func(p *corev1.Pod) {
			p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{always}}
		}, false},
		"a spread that is a must": {func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}
		}, false},
		"pinned by a label": {func(p *corev1.Pod) {
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions = []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}
		}, false},
		"two terms": {func(p *corev1.Pod) {
			r := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			r.NodeSelectorTerms = append(r.NodeSelectorTerms, r.NodeSelectorTerms[0])
		}, false},
		"no affinity": {func(p *corev1.Pod) { p.Spec.Affinity = nil }, false},
	} {
		if _, got := Pinned(pod("a", "", 0, c.change)); got != c.want {
			t.Errorf("%s: pinned %v, want %v", name, got, c.want)
		}
	}
}

func volume(v corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: v}} }
}

func TestUnschedulableBeginsAsUpstreamsMessageDoes(t *testing.T) {
	short := []Obstacle{{Upstream: "Insufficient cpu", Curable: true, Reason: Reason{Message: "Insufficient cpu: asks 1, free 0 of 2"}}}
	for preemption, want := range map[string]string{
		"No preemption victims found for incoming pod": "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling. Node n: Insufficient cpu: asks 1, free 0 of 2.",
		"not eligible due to preemptionPolicy=Never.":  "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: not eligible due to preemptionPolicy=Never. Node n: Insufficient cpu: asks 1, free 0 of 2.",
		"": "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling. Node n: Insufficient cpu: asks 1, free 0 of 2.",
	} {
		if got := Unschedulable(3, "n", short, preemption); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := Unschedulable(1, "n", short, "No preemption victims found for incoming pod"); !strings.HasPrefix(got, "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.") {
		t.Error(got)
	}
}
