package simnode

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// A write that fails is tried again after these, doubling; after so many in a row
// the pod is left until it changes.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
	retries    = 20
)

// life is what is remembered of one pod. Only the worker that holds the pod's key
// touches it; uid and ip never change.
type life struct {
	uid      types.UID
	ip       uint16    // 0 in the host's network
	seen     time.Time // when it began
	ends     time.Time // when its containers are gone; zero until it is being deleted
	next     time.Time // when it crashes again
	restarts int32
	fails    int
	told     string // the annotation last complained about
	stage    string // what was last written
}

func (f *Fleet) startEvents(b record.EventBroadcaster) {
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: f.cfg.Client.CoreV1().Events("")})
	f.recorder = b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "simulated-kubelet"})
}

func (f *Fleet) work(ctx context.Context) {
	for {
		key, quit := f.queue.Get()
		if quit {
			return
		}
		if wait := f.step(ctx, key); wait > 0 {
			f.queue.AddAfter(key, wait)
		}
		f.queue.Done(key)
	}
}

// step moves one pod on and returns when to look again, 0 for not by itself.
func (f *Fleet) step(ctx context.Context, key cache.ObjectName) time.Duration {
	obj, found, err := f.pods.GetStore().GetByKey(key.String())
	if err != nil || !found {
		f.forget(key)
		return 0
	}
	p := obj.(*corev1.Pod)
	n := f.nodes[p.Spec.NodeName]
	if n == nil || !f.alive(n) {
		return 0 // SetReady wakes the pods of a node that comes back
	}
	l := f.lifeOf(key, p)
	wait, err := f.play(ctx, p, n, l)
	if err == nil {
		l.fails = 0
		return wait
	}
	return f.retry(ctx, key, l, err)
}

func (f *Fleet) retry(ctx context.Context, key cache.ObjectName, l *life, err error) time.Duration {
	switch {
	case ctx.Err() != nil:
		return 0
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return 0 // it changed or went: the watch tells
	case l.fails >= retries:
		f.cfg.Logger.Error(err, "gave up playing a simulated pod until it changes", "pod", key)
		l.fails = 0
		return 0
	}
	wait := min(firstRetry<<l.fails, lastRetry)
	l.fails++
	f.cfg.Logger.Error(err, "play a simulated pod", "pod", key, "retryAfter", wait)
	return wait
}

// play does to a pod what its kubelet would do now.
func (f *Fleet) play(ctx context.Context, p *corev1.Pod, n *node, l *life) (time.Duration, error) {
	b, invalid := behaviourOf(p, f.labelsOf(p, n))
	if p.DeletionTimestamp != nil {
		if invalid == nil && b.stuck {
			return 0, nil
		}
		return f.end(ctx, p, l)
	}
	if terminal(p) {
		return 0, nil
	}
	if invalid != nil {
		if value := p.Annotations[Annotation]; l.told != value {
			f.recorder.Event(p, corev1.EventTypeWarning, "InvalidSimAnnotation", invalid.Error())
			l.told = value
		}
		return 0, nil
	}
	d := n.decide(moment{pod: p, life: *l, behaviour: b, readyDelay: f.cfg.ReadyDelay, now: time.Now()})
	if d.status == nil || d.settled(p, l) {
		return d.wait, nil
	}
	patch, err := statusPatch(p, d.status)
	if err != nil {
		return 0, err
	}
	if _, err := f.cfg.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return 0, err
	}
	*l = d.life
	return d.wait, nil
}

// labelsOf are the node's labels as the API has them. They matter only for an
// annotation.
func (f *Fleet) labelsOf(p *corev1.Pod, n *node) map[string]string {
	if p.Annotations[Annotation] == "" {
		return nil
	}
	if obj, found, _ := f.objects.GetStore().GetByKey(n.spec.Name); found {
		return obj.(*corev1.Node).Labels
	}
	return n.labels()
}

// lifeOf finds or begins a pod's life. One that runs already began when it started.
func (f *Fleet) lifeOf(key cache.ObjectName, p *corev1.Pod) *life {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lives[key]; l != nil {
		if l.uid == p.UID {
			return l
		}
		f.drop(key, l)
	}
	l := &life{uid: p.UID, seen: time.Now()}
	if p.Status.StartTime != nil {
		l.seen = p.Status.StartTime.Time
	}
	if !p.Spec.HostNetwork {
		var kept bool
		if l.ip, kept = f.ips.reserve(p.Status.PodIP); !kept {
			l.ip = f.ips.take()
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		l.restarts = max(l.restarts, c.RestartCount)
	}
	f.lives[key] = l
	return l
}

func (f *Fleet) forget(key cache.ObjectName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lives[key]; l != nil {
		f.drop(key, l)
	}
}

// drop drops one life; the caller holds the mutex.
func (f *Fleet) drop(key cache.ObjectName, l *life) {
	if l.ip != 0 {
		f.ips.release(l.ip)
	}
	delete(f.lives, key)
}

// end deletes the pod's object once its containers would be gone.
func (f *Fleet) end(ctx context.Context, p *corev1.Pod, l *life) (time.Duration, error) {
	if l.ends.IsZero() {
		l.ends = time.Now().Add(f.terminationDelay(p))
	}
	if wait := time.Until(l.ends); wait > 0 {
		return wait, nil
	}
	zero := int64(0)
	return 0, f.cfg.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID}})
}

func (f *Fleet) terminationDelay(p *corev1.Pod) time.Duration {
	if terminal(p) {
		return 0
	}
	delay := f.cfg.TerminationDelay
	if g := p.DeletionGracePeriodSeconds; g != nil {
		delay = min(delay, time.Duration(*g)*time.Second)
	}
	return delay
}

func terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}
