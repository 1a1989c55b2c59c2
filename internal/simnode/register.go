package simnode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	leaseNamespace = "kube-node-lease"
	leasePeriod    = 10 * time.Second
	leaseDuration  = 40 // seconds, as a kubelet's
)

// register creates the Node objects, or takes over those that are there.
func (f *Fleet) register(ctx context.Context) error {
	names := make([]string, len(f.cfg.Nodes))
	for i, s := range f.cfg.Nodes {
		names[i] = s.Name
	}
	var mu sync.Mutex
	var first error
	workqueue.ParallelizeUntil(ctx, workers, len(names), func(i int) {
		if err := f.registerNode(ctx, f.node(names[i])); err != nil {
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = fmt.Errorf("register the simulated node %s: %w", names[i], err)
			}
		}
	})
	return first
}

func (f *Fleet) registerNode(ctx context.Context, n *node) error {
	nodes := f.cfg.Client.CoreV1().Nodes()
	obj, err := nodes.Create(ctx, n.object(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		obj, err = nodes.Get(ctx, n.spec.Name, metav1.GetOptions{})
		if err == nil && obj.Labels[Label] != "true" {
			return fmt.Errorf("a node of that name exists and is not simulated")
		}
	}
	if err != nil {
		return err
	}
	n.uid = string(obj.UID)
	patch, err := json.Marshal(map[string]any{"status": n.status(f.cfg.Version)})
	if err != nil {
		return err
	}
	if _, err := nodes.Patch(ctx, n.spec.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	return f.renew(ctx, n)
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

func (n *node) object() *corev1.Node {
	labels := map[string]string{corev1.LabelHostname: n.spec.Name, corev1.LabelOSStable: n.os(), corev1.LabelArchStable: n.arch()}
	maps.Copy(labels, n.spec.Labels)
	labels[Label] = "true"
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.spec.Name, Labels: labels}, Spec: corev1.NodeSpec{Taints: n.spec.Taints}}
}

// address is out of the range for benchmarks (RFC 2544): no packet goes there.
func (n *node) address() string {
	return fmt.Sprintf("198.18.%d.%d", n.index/250, n.index%250+1)
}

func (n *node) status(version string) corev1.NodeStatus {
	alloc := n.spec.Allocatable
	if alloc == nil {
		alloc = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
			corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	}
	return corev1.NodeStatus{
		Capacity: alloc, Allocatable: alloc, Conditions: nodeConditions(metav1.Now()),
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.address()}, {Type: corev1.NodeHostName, Address: n.spec.Name}},
		NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version, OSImage: "Simulated", OperatingSystem: n.os(), Architecture: n.arch(),
			KernelVersion: "simulated", ContainerRuntimeVersion: "simulated://1"},
	}
}

func nodeConditions(now metav1.Time) []corev1.NodeCondition {
	c := func(t corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []corev1.NodeCondition{
		c(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		c(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		c(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		c(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}

// beat renews each node's lease every ten seconds, spread over that time.
func (f *Fleet) beat(ctx context.Context) {
	if len(f.cfg.Nodes) == 0 {
		return
	}
	tick := time.NewTicker(leasePeriod / time.Duration(len(f.cfg.Nodes)))
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(f.cfg.Nodes) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f.beatNode(ctx, f.node(f.cfg.Nodes[i].Name))
	}
}

func (f *Fleet) beatNode(ctx context.Context, n *node) {
	if err := f.renew(ctx, n); err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "renew the lease of a simulated node", "node", n.spec.Name)
	}
}

func (f *Fleet) renew(ctx context.Context, n *node) error {
	leases := f.cfg.Client.CoordinationV1().Leases(leaseNamespace)
	now := metav1.NewMicroTime(time.Now())
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, n.spec.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: n.spec.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: n.spec.Name, UID: types.UID(n.uid)}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.spec.Name, LeaseDurationSeconds: ptr.To[int32](leaseDuration), RenewTime: &now},
	}, metav1.CreateOptions{})
	return err
}
