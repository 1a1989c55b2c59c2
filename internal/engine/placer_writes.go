package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

var createOptions = metav1.CreateOptions{}

func objectMeta(p *corev1.Pod) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// preempt ends the victims as upstream's scheduler does: a condition says why, then
// they are deleted with their own grace period.
func (p *Placer) preempt(ctx context.Context, pod *corev1.Pod, node string, victims []*corev1.Pod) error {
	var errs []error
	for _, v := range victims {
		if v.DeletionTimestamp != nil {
			continue
		}
		condition := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message: schedulerSource + ": preempting to accommodate a higher priority pod", LastTransitionTime: metav1.Now()}
		err := p.patchStatus(ctx, v, map[string]any{"conditions": []corev1.PodCondition{condition}})
		if err == nil {
			err = p.engine.client.CoreV1().Pods(v.Namespace).Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID}})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("preempt %s/%s: %w", v.Namespace, v.Name, err))
			continue
		}
		p.recorder.Eventf(v, corev1.EventTypeNormal, "Preempted", "Preempted by pod %s on node %s", pod.UID, node)
	}
	return errors.Join(errs...)
}

// report writes the PodScheduled condition and, with it, the event: once for each
// message, however often the node changes.
func (p *Placer) report(ctx context.Context, pod *corev1.Pod, message, nominate string) error {
	c := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
		LastTransitionTime: metav1.Now()}
	for _, old := range pod.Status.Conditions {
		if old.Type != corev1.PodScheduled {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message && pod.Status.NominatedNodeName == nominate {
			return nil
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	status := map[string]any{"conditions": []corev1.PodCondition{c}, "nominatedNodeName": nil}
	if nominate != "" {
		status["nominatedNodeName"] = nominate
	}
	p.recorder.Event(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	return p.patchStatus(ctx, pod, status)
}

func (p *Placer) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = p.engine.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Pinned says which pods the engine places, see PlacePinned: other schedulers leave them.
func Pinned(p *corev1.Pod) bool {
	_, yes := fit.Pinned(p)
	return yes
}
