package simnode

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// retryAfter is how long a refused write waits.
const retryAfter = time.Second

// life is what is remembered of one pod.
type life struct {
	uid      types.UID
	seen     time.Time
	ends     time.Time // zero until it is being deleted
	restarts int32
	stage    string // what was last written
}

func (f *Fleet) startEvents(b record.EventBroadcaster) {
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: f.cfg.Client.CoreV1().Events("")})
	f.recorder = b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"})
}

func (f *Fleet) work(ctx context.Context) {
	for {
		key, quit := f.queue.Get()
		if quit {
			return
		}
		wait, err := f.step(ctx, key)
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "play a simulated pod", "pod", key)
			wait = retryAfter
		}
		if wait > 0 {
			f.queue.AddAfter(key, wait)
		}
		f.queue.Done(key)
	}
}

// step moves one pod on and returns when to look again, 0 for not by itself.
func (f *Fleet) step(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	obj, found, err := f.pods.GetStore().GetByKey(key.String())
	if err != nil {
		return 0, err
	}
	if !found {
		f.forget(key)
		return 0, nil
	}
	p := obj.(*corev1.Pod)
	n := f.node(p.Spec.NodeName)
	if n == nil {
		return 0, nil
	}
	l := f.lifeOf(key, p)
	if p.DeletionTimestamp != nil {
		return f.end(ctx, p, l)
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return 0, nil
	}
	b, err := behaviourOf(p, n.object().Labels)
	if err != nil {
		f.recorder.Event(p, corev1.EventTypeWarning, "InvalidSimAnnotation", err.Error())
		return 0, nil
	}
	status, stage, wait := n.live(p, l, b, f.cfg.ReadyDelay, time.Now())
	written := stage == l.stage
	if stage == "ready" {
		// Others write readiness too: the node lifecycle controller when a lease
		// is late. And after a restart what is ready already stays untouched.
		written = isReady(p)
	}
	if stage == "" || written {
		return wait, nil
	}
	if err := f.write(ctx, p, status); err != nil {
		return 0, err
	}
	l.stage = stage
	return wait, nil
}

func (f *Fleet) lifeOf(key cache.ObjectName, p *corev1.Pod) *life {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lives[key]
	if l == nil || l.uid != p.UID {
		l = &life{uid: p.UID, seen: time.Now()}
		for _, c := range p.Status.ContainerStatuses {
			l.restarts = max(l.restarts, c.RestartCount)
		}
		f.lives[key] = l
	}
	return l
}

func (f *Fleet) forget(key cache.ObjectName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lives, key)
}

// end deletes the pod's object once its containers would be gone.
func (f *Fleet) end(ctx context.Context, p *corev1.Pod, l *life) (time.Duration, error) {
	if l.ends.IsZero() {
		delay := f.cfg.TerminationDelay
		if g := p.DeletionGracePeriodSeconds; g != nil {
			delay = min(delay, time.Duration(*g)*time.Second)
		}
		l.ends = time.Now().Add(delay)
	}
	if wait := time.Until(l.ends); wait > 0 {
		return wait, nil
	}
	zero := int64(0)
	err := f.cfg.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil
	}
	return 0, err
}

func (f *Fleet) write(ctx context.Context, p *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = f.cfg.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
