package simnode

import (
	"context"
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	leasePeriod   = 10 * time.Second
	leaseDuration = 40 // seconds, as a kubelet's
	statusPeriod  = 5 * time.Minute
	// scheduleStep bounds how often the schedule wakes, however many nodes there are.
	scheduleStep = 20 * time.Millisecond
)

// schedule hands each node to the renewals once in a period, spread over it by
// index. When the API is slow the beats come late instead of piling up.
func (f *Fleet) schedule(ctx context.Context) {
	gap := leasePeriod / time.Duration(len(f.order))
	timer := time.NewTimer(0)
	defer timer.Stop()
	start := time.Now()
	for i := 0; ; i++ {
		if i == len(f.order) {
			i = 0
			start = start.Add(leasePeriod)
			if late := time.Since(start); late > leasePeriod {
				start = time.Now()
			}
		}
		if wait := time.Until(start.Add(time.Duration(i) * gap)); wait > 0 {
			timer.Reset(max(wait, scheduleStep))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
		select {
		case <-ctx.Done():
			return
		case f.beats <- f.order[i]:
		}
	}
}

func (f *Fleet) renewals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-f.beats:
			f.beat(ctx, n)
		}
	}
}

// beat renews one lease, and posts the node's status when it changed or was not
// posted for long. What fails is tried again at the next beat.
func (f *Fleet) beat(ctx context.Context, n *node) {
	if !f.alive(n) {
		return
	}
	if err := f.renew(ctx, n); err != nil && ctx.Err() == nil {
		f.cfg.Logger.Error(err, "renew the lease of a simulated node", "node", n.spec.Name)
	}
	f.mu.Lock()
	due := time.Since(n.posted) >= statusPeriod
	f.mu.Unlock()
	if !due {
		return
	}
	if err := f.post(ctx, n); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		f.cfg.Logger.Error(err, "post the status of a simulated node", "node", n.spec.Name)
	}
}

// beatSoon does not wait for the node's turn, unless the renewals are busy.
func (f *Fleet) beatSoon(n *node) {
	select {
	case f.beats <- n:
	default:
	}
}

// repost has the node say again that it is ready.
func (f *Fleet) repost(n *node) {
	f.mu.Lock()
	n.posted, n.since = time.Time{}, metav1.Time{}
	f.mu.Unlock()
	f.beatSoon(n)
}

// renew writes the lease's time; a lease that is not there is created.
func (f *Fleet) renew(ctx context.Context, n *node) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": metav1.NewMicroTime(time.Now())}})
	if err != nil {
		return err
	}
	_, err = f.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, n.spec.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) && f.alive(n) {
		return f.createLease(ctx, n)
	}
	return err
}

// takeLease makes the lease the node's: one left by an earlier Node of the name
// belongs to that one's UID and would be collected.
func (f *Fleet) takeLease(ctx context.Context, n *node) error {
	l := f.lease(n)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": l.OwnerReferences}, "spec": l.Spec})
	if err != nil {
		return err
	}
	_, err = f.cfg.Client.CoordinationV1().Leases(l.Namespace).Patch(ctx, l.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return f.createLease(ctx, n)
	}
	return err
}

func (f *Fleet) createLease(ctx context.Context, n *node) error {
	_, err := f.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, f.lease(n), metav1.CreateOptions{})
	return err
}

func (f *Fleet) lease(n *node) *coordinationv1.Lease {
	f.mu.Lock()
	uid := n.uid
	f.mu.Unlock()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n.spec.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.spec.Name, UID: uid}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(n.spec.Name), LeaseDurationSeconds: ptr.To[int32](leaseDuration),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	}
}
