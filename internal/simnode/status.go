package simnode

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The restart backoff of a kubelet, in seconds.
const (
	firstRestart = 10 * time.Second
	lastRestart  = 300 * time.Second
	// backOffAfter is when ErrImagePull becomes ImagePullBackOff.
	backOffAfter = 10 * time.Second
)

// live is the status a pod has now, the name of its stage, and when the next one
// comes. An empty stage writes nothing.
func (n *node) live(p *corev1.Pod, l *life, b behaviour, readyDelay time.Duration, now time.Time) (corev1.PodStatus, string, time.Duration) {
	age := now.Sub(l.seen)
	if b.noImage {
		return n.pulling(p, l, age, now)
	}
	if wait := readyDelay - age; wait > 0 {
		return corev1.PodStatus{}, "", wait
	}
	running := func(c corev1.Container) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}
	}
	switch {
	case b.crash || b.oom:
		return n.crashing(p, l, b, now)
	case b.neverReady:
		return n.build(p, corev1.PodRunning, false, running, now), "never-ready", 0
	case b.slow > age:
		return n.build(p, corev1.PodRunning, false, running, now), "slow", b.slow - age
	default:
		return n.build(p, corev1.PodRunning, true, running, now), "ready", 0
	}
}

func (n *node) pulling(p *corev1.Pod, l *life, age time.Duration, now time.Time) (corev1.PodStatus, string, time.Duration) {
	reason, next := "ErrImagePull", backOffAfter-age
	if next <= 0 {
		reason, next = "ImagePullBackOff", 0
	}
	s := n.build(p, corev1.PodPending, false, func(c corev1.Container) corev1.ContainerState {
		message := fmt.Sprintf("failed to pull image %q: not found", c.Image)
		if reason == "ImagePullBackOff" {
			message = fmt.Sprintf("Back-off pulling image %q", c.Image)
		}
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}, now)
	return s, reason, next
}

func (n *node) crashing(p *corev1.Pod, l *life, b behaviour, now time.Time) (corev1.PodStatus, string, time.Duration) {
	wait := firstRestart
	for i := int32(0); i < l.restarts && wait < lastRestart; i++ {
		wait *= 2
	}
	wait = min(wait, lastRestart)
	last := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: metav1.NewTime(now)}
	if b.oom {
		last.ExitCode, last.Reason = 137, "OOMKilled"
	}
	s := n.build(p, corev1.PodRunning, false, func(c corev1.Container) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, c.Name, p.Name, p.Namespace, p.UID)}}
	}, now)
	l.restarts++
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].RestartCount = l.restarts
		s.ContainerStatuses[i].LastTerminationState.Terminated = &last
	}
	return s, fmt.Sprintf("crash-%d", l.restarts), wait
}

// build makes a status in which every container is in the state given.
func (n *node) build(p *corev1.Pod, phase corev1.PodPhase, ready bool, state func(corev1.Container) corev1.ContainerState, now time.Time) corev1.PodStatus {
	at := metav1.NewTime(now)
	s := corev1.PodStatus{Phase: phase, HostIP: n.address(), HostIPs: []corev1.HostIP{{IP: n.address()}}, StartTime: p.Status.StartTime}
	if s.StartTime == nil {
		s.StartTime = &at
	}
	if phase == corev1.PodRunning {
		s.PodIP = n.podIP(p)
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	var unready []string
	for _, c := range p.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, initStatus(c, at))
	}
	for _, c := range p.Spec.Containers {
		st := state(c)
		started := st.Running != nil
		if !ready {
			unready = append(unready, c.Name)
		}
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "simulated://" + c.Image,
			ContainerID: "simulated://" + string(p.UID) + "/" + c.Name, State: st, Ready: ready, Started: &started})
	}
	cond := func(t corev1.PodConditionType, ok bool) {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: at}
		if !ok {
			c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotReady"
			c.Message = "containers with unready status: [" + strings.Join(unready, " ") + "]"
		}
		for _, old := range p.Status.Conditions {
			if old.Type == t && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		s.Conditions = append(s.Conditions, c)
	}
	cond(corev1.PodReadyToStartContainers, true)
	cond(corev1.PodInitialized, true)
	cond(corev1.PodReady, ready)
	cond(corev1.ContainersReady, ready)
	cond(corev1.PodScheduled, true)
	return s
}

func initStatus(c corev1.Container, at metav1.Time) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "simulated://" + c.Image, Ready: true}
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		yes := true
		st.Started, st.State.Running = &yes, &corev1.ContainerStateRunning{StartedAt: at}
		return st
	}
	st.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at}
	return st
}

// podIP is the node's own for a pod in the host's network, else one derived from
// the pod.
func (n *node) podIP(p *corev1.Pod) string {
	if p.Spec.HostNetwork {
		return n.address()
	}
	h := fnv.New32a()
	h.Write([]byte(p.UID))
	sum := h.Sum32()
	return fmt.Sprintf("198.19.%d.%d", sum>>8&0xff, sum&0xff)
}
