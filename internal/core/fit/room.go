package fit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Room is one node as a pod that wants to go there finds it.
type Room struct {
	Node *corev1.Node
	Pods []*corev1.Pod // bound to it, or promised to it; those that ended take nothing
	// Averse are the pods of the cluster with a required anti-affinity, and NodeOf
	// and NamespaceOf what their terms are judged by; nil where unknown.
	Averse      []*corev1.Pod
	NodeOf      func(name string) *corev1.Node
	NamespaceOf func(name string) *corev1.Namespace
}

// Obstacle is one reason why a pod cannot be on a node. Upstream is the scheduler's
// phrase for it. Curable ones can go when other pods do.
type Obstacle struct {
	Reason
	Upstream string
	Curable  bool
}

// Obstacles are all reasons why the pod cannot be on the node now, those that no
// other pod causes first; none if it can. The rules are the scheduler's filters.
func (r Room) Obstacles(p *corev1.Pod) []Obstacle {
	if out := r.unfit(p); len(out) > 0 {
		return out
	}
	return slices.Concat(r.ports(p), r.resources(p), r.aversion(p))
}

// unfit is what the node itself has against the pod.
func (r Room) unfit(p *corev1.Pod) []Obstacle {
	no := func(code Code, upstream, message string) []Obstacle {
		return []Obstacle{{Reason: Reason{Code: code, Object: "node/" + r.Node.Name, Message: message}, Upstream: upstream}}
	}
	if r.Node.Spec.Unschedulable && !tolerated(&corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, p.Spec.Tolerations) {
		return no(NodeUnschedulable, "node(s) were unschedulable", "the node is cordoned")
	}
	for i := range r.Node.Spec.Taints {
		t := &r.Node.Spec.Taints[i]
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(t, p.Spec.Tolerations) {
			return no(UntoleratedTaint, "node(s) had untolerated taint(s)", fmt.Sprintf("taint %s is not tolerated", t.ToString()))
		}
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(r.Node); err != nil || !ok {
		return no(NodeAffinityMismatch, "node(s) didn't match Pod's node affinity/selector", "the pod's nodeSelector or affinity does not match the node")
	}
	return nil
}

// ports are the node's ports that somebody else has.
func (r Room) ports(p *corev1.Pod) []Obstacle {
	var taken []string
	for _, want := range HostPorts(&p.Spec) {
		for _, other := range r.Pods {
			if other.UID != p.UID && !ended(other) && slices.ContainsFunc(HostPorts(&other.Spec), want.conflicts) {
				taken = append(taken, fmt.Sprintf("port %s held by %s/%s", want, other.Namespace, other.Name))
				break
			}
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return []Obstacle{{Upstream: "node(s) didn't have free ports for the requested pod ports", Curable: true,
		Reason: Reason{Code: HostPortTaken, Object: "node/" + r.Node.Name, Message: strings.Join(taken, ", ")}}}
}

// HostPort is a port of the node that a pod takes.
type HostPort struct {
	IP       string // "" for every address
	Protocol corev1.Protocol
	Port     int32
}

// String is the port as in 9100, 53/UDP or 127.0.0.1:53/UDP.
func (h HostPort) String() string {
	out := fmt.Sprint(h.Port)
	if h.IP != "" {
		out = h.IP + ":" + out
	}
	if h.Protocol != corev1.ProtocolTCP {
		out += "/" + string(h.Protocol)
	}
	return out
}

func (h HostPort) conflicts(o HostPort) bool {
	return h.Port == o.Port && h.Protocol == o.Protocol && (h.IP == "" || o.IP == "" || h.IP == o.IP)
}

// HostPorts are the ports of the node that a pod takes while it runs: those of its
// containers and of its sidecars. On the node's network a container's port is one,
// as the API completes it in a pod.
func HostPorts(s *corev1.PodSpec) []HostPort {
	var out []HostPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			h := HostPort{IP: p.HostIP, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), Port: p.HostPort}
			if h.Port == 0 && s.HostNetwork {
				h.Port = p.ContainerPort
			}
			if h.IP == "0.0.0.0" || h.IP == "::" {
				h.IP = ""
			}
			if h.Port > 0 && !slices.Contains(out, h) {
				out = append(out, h)
			}
		}
	}
	for i := range s.InitContainers {
		if c := &s.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range s.Containers {
		add(&s.Containers[i])
	}
	return out
}

// Requests are what a pod holds of a node: by its spec, or by what the kubelet has
// granted it where it is being resized.
func Requests(p *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true})
}

// resources are those of which too little is left.
func (r Room) resources(p *corev1.Pod) []Obstacle {
	var out []Obstacle
	held := map[corev1.ResourceName]resource.Quantity{}
	var holders []*corev1.Pod
	for _, other := range r.Pods {
		if other.UID == p.UID || ended(other) {
			continue
		}
		holders = append(holders, other)
		for name, q := range Requests(other) { //nolint:gocritic // sums do not depend on the order
			sum := held[name]
			sum.Add(q)
			held[name] = sum
		}
	}
	slots := r.Node.Status.Allocatable.Pods().Value()
	if n := int64(len(holders)); n+1 > slots {
		out = append(out, Obstacle{Upstream: "Too many pods", Curable: slots > 0, Reason: Reason{Code: TooManyPods, Object: "node/" + r.Node.Name,
			Asked: "1", Free: fmt.Sprint(max(0, slots-n)), Limit: fmt.Sprint(slots), Message: fmt.Sprintf("Too many pods: %d of %d slots are taken", n, slots)}})
	}
	want := Requests(p)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		asked, limit, used := want[name], r.Node.Status.Allocatable[name], held[name]
		free := limit.DeepCopy()
		free.Sub(used)
		if asked.IsZero() || asked.Cmp(free) <= 0 {
			continue
		}
		if free.Sign() < 0 {
			free = resource.Quantity{}
		}
		text := fmt.Sprintf("Insufficient %s: asks %s, free %s of %s", name, &asked, &free, &limit)
		if by := heldBy(holders, name); by != "" {
			text += "; held by " + by
		}
		out = append(out, Obstacle{Upstream: "Insufficient " + string(name), Curable: asked.Cmp(limit) <= 0, Reason: Reason{Code: InsufficientResource, Object: "node/" + r.Node.Name,
			Asked: asked.String(), Free: free.String(), Limit: limit.String(), Message: text}})
	}
	return out
}

// heldBy names the pods that hold most of a resource.
func heldBy(pods []*corev1.Pod, name corev1.ResourceName) string {
	type holder struct {
		pod      string
		q        resource.Quantity
		promised string
	}
	var all []holder
	for _, p := range pods {
		if q := Requests(p)[name]; !q.IsZero() {
			h := holder{pod: p.Namespace + "/" + p.Name, q: q}
			if p.Spec.NodeName == "" {
				h.promised = ", promised"
			}
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Or(b.q.Cmp(a.q), cmp.Compare(a.pod, b.pod)) })
	var out []string
	for i, h := range all {
		if i == 3 {
			return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), len(all)-i)
		}
		out = append(out, fmt.Sprintf("%s (%s%s)", h.pod, h.q.String(), h.promised))
	}
	return strings.Join(out, ", ")
}

// aversion is another pod's required anti-affinity that this one would break.
func (r Room) aversion(p *corev1.Pod) []Obstacle {
	for _, other := range r.Averse {
		if other.UID == p.UID || ended(other) || other.Spec.NodeName == "" || r.NodeOf == nil {
			continue
		}
		there := r.NodeOf(other.Spec.NodeName)
		if there == nil {
			continue
		}
		for i := range other.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			term := &other.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
			value, has := there.Labels[term.TopologyKey]
			if here, ok := r.Node.Labels[term.TopologyKey]; !has || !ok || here != value || !r.selects(term, other, p) {
				continue
			}
			return []Obstacle{{Upstream: "node(s) didn't satisfy existing pods anti-affinity rules", Curable: true, Reason: Reason{Code: PodAntiAffinity,
				Object: "pod/" + other.Name, Message: fmt.Sprintf("pod %s/%s does not want it in the same %s", other.Namespace, other.Name, term.TopologyKey)}}}
		}
	}
	return nil
}

func (r Room) selects(t *corev1.PodAffinityTerm, owner, p *corev1.Pod) bool {
	namespaces := sets.New(t.Namespaces...)
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		namespaces.Insert(owner.Namespace)
	}
	inside := namespaces.Has(p.Namespace)
	if !inside && t.NamespaceSelector != nil && r.NamespaceOf != nil {
		ns := r.NamespaceOf(p.Namespace)
		s, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
		inside = err == nil && ns != nil && s.Matches(labels.Set(ns.Labels))
	}
	s, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	return inside && err == nil && s.Matches(labels.Set(p.Labels))
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}
