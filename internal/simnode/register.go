package simnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
)

// registration is how a node that cannot register tries again: for some ten seconds.
var registration = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 7, Jitter: 0.1}

var errNotSimulated = errors.New("a node of that name exists and is not simulated")

// node is what is remembered of one node. The fields below uid, and it, are
// guarded by the fleet's mutex.
type node struct {
	spec  Spec
	index int

	uid    types.UID
	off    bool        // as told by SetReady
	gone   bool        // its Node object was deleted
	posted time.Time   // when its status was last written
	since  metav1.Time // when it last became ready
}

// register creates the Node objects, or takes over those that are there.
func (f *Fleet) register(ctx context.Context) error {
	var mu sync.Mutex
	var first error
	workqueue.ParallelizeUntil(ctx, workers, len(f.order), func(i int) {
		if err := f.registerNode(ctx, f.order[i]); err != nil {
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = fmt.Errorf("register the simulated node %s: %w", f.order[i].spec.Name, err)
			}
		}
	})
	if first == nil {
		first = ctx.Err()
	}
	return first
}

func (f *Fleet) registerNode(ctx context.Context, n *node) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, registration, func(ctx context.Context) (bool, error) {
		last = f.registerOnce(ctx, n)
		if errors.Is(last, errNotSimulated) || apierrors.IsInvalid(last) || apierrors.IsBadRequest(last) || apierrors.IsUnauthorized(last) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

func (f *Fleet) registerOnce(ctx context.Context, n *node) error {
	nodes := f.cfg.Client.CoreV1().Nodes()
	obj, err := nodes.Create(ctx, n.object(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		obj, err = f.takeOver(ctx, n)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	n.uid, n.since = obj.UID, readySince(obj)
	f.mu.Unlock()
	if err := f.takeLease(ctx, n); err != nil && ctx.Err() == nil {
		f.cfg.Logger.Error(err, "write the lease of a simulated node", "node", n.spec.Name) // again at its first beat
	}
	return f.post(ctx, n)
}

// takeOver gives an earlier simulated Node this one's labels. Its taints stay, as
// they do when a kubelet starts again.
func (f *Fleet) takeOver(ctx context.Context, n *node) (*corev1.Node, error) {
	nodes := f.cfg.Client.CoreV1().Nodes()
	obj, err := nodes.Get(ctx, n.spec.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if obj.Labels[Label] != "true" {
		return nil, errNotSimulated
	}
	want := n.labels()
	same := true
	for k, v := range want {
		have, ok := obj.Labels[k]
		same = same && ok && have == v
	}
	if same {
		return obj, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.UID, "labels": want}})
	if err != nil {
		return nil, err
	}
	return nodes.Patch(ctx, n.spec.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}

// post writes the node's status.
func (f *Fleet) post(ctx context.Context, n *node) error {
	now := metav1.Now()
	f.mu.Lock()
	uid, since := n.uid, n.since
	f.mu.Unlock()
	if since.IsZero() {
		since = now
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": n.status(f.cfg.Version, now, since)})
	if err != nil {
		return err
	}
	if _, err := f.cfg.Client.CoreV1().Nodes().Patch(ctx, n.spec.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n.posted, n.since = now.Time, since
	return nil
}

// readySince is when a Node that is ready became so.
func readySince(o *corev1.Node) metav1.Time {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

func (n *node) os() string {
	if n.spec.OS != "" {
		return n.spec.OS
	}
	return "linux"
}

func (n *node) arch() string {
	if n.spec.Arch != "" {
		return n.spec.Arch
	}
	return "amd64"
}

func (n *node) labels() map[string]string {
	labels := map[string]string{corev1.LabelHostname: n.spec.Name, corev1.LabelOSStable: n.os(), corev1.LabelArchStable: n.arch()}
	maps.Copy(labels, n.spec.Labels)
	labels[Label] = "true"
	return labels
}

func (n *node) object() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.spec.Name, Labels: n.labels()}, Spec: corev1.NodeSpec{Taints: n.spec.Taints}}
}

// resources are those of the spec over the default ones, so that a spec that names
// only its CPU still has room for pods.
func (n *node) resources() (capacity, allocatable corev1.ResourceList) {
	capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	if n.spec.Capacity != nil {
		maps.Copy(capacity, n.spec.Capacity)
	} else {
		maps.Copy(capacity, n.spec.Allocatable)
	}
	allocatable = maps.Clone(capacity)
	maps.Copy(allocatable, n.spec.Allocatable)
	return capacity, allocatable
}

func (n *node) status(version string, now, since metav1.Time) corev1.NodeStatus {
	capacity, allocatable := n.resources()
	return corev1.NodeStatus{
		Capacity: capacity, Allocatable: allocatable, Conditions: nodeConditions(now, since),
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.address()}, {Type: corev1.NodeHostName, Address: n.spec.Name}},
		NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version, OSImage: "Simulated", OperatingSystem: n.os(), Architecture: n.arch(),
			KernelVersion: "simulated", ContainerRuntimeVersion: "simulated://1"},
	}
}

func nodeConditions(now, since metav1.Time) []corev1.NodeCondition {
	c := func(t corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: since}
	}
	return []corev1.NodeCondition{
		c(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		c(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		c(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		c(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}
