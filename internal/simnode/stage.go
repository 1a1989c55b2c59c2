package simnode

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// A kubelet's backoff before it restarts a container.
	firstRestart = 10 * time.Second
	lastRestart  = 300 * time.Second
	// backOffAfter is when ErrImagePull becomes ImagePullBackOff.
	backOffAfter = 10 * time.Second

	stageReady = "ready"
)

// moment is what a decision about one pod is made from.
type moment struct {
	pod        *corev1.Pod
	life       life
	behaviour  behaviour
	readyDelay time.Duration
	now        time.Time
}

// decision is the status a pod has now, none while it only starts; its life once
// that is written; and when to look again.
type decision struct {
	status *corev1.PodStatus
	life   life
	wait   time.Duration
}

// decide is pure: a write that fails leaves the life as it was.
func (n *node) decide(m moment) decision {
	age := m.now.Sub(m.life.seen)
	if i, c := m.unpullable(); i || c {
		return n.pulling(m, i, age)
	}
	if wait := m.readyDelay - age; wait > 0 {
		return decision{life: m.life, wait: wait}
	}
	switch b := m.behaviour; {
	case b.crash || b.oom:
		return n.crashing(m)
	case b.neverReady:
		return m.reach("never-ready", n.running(m, false), 0)
	case b.slow > age:
		return m.reach("slow", n.running(m, false), b.slow-age)
	default:
		return m.reach(stageReady, n.running(m, true), 0)
	}
}

func (m moment) reach(stage string, s *corev1.PodStatus, wait time.Duration) decision {
	m.life.stage = stage
	return decision{status: s, life: m.life, wait: wait}
}

// settled says whether the API has what was decided: the stage was written, or was
// reached under an earlier fleet, and nobody wrote otherwise since, as the node
// lifecycle controller does when a lease is late.
func (d decision) settled(p *corev1.Pod, l *life) bool {
	known := l.stage == d.life.stage || l.stage == "" && d.life.stage == stageReady
	return known && p.Status.Phase == d.status.Phase && isReady(p.Status.Conditions) == isReady(d.status.Conditions)
}

func isReady(conditions []corev1.PodCondition) bool {
	for _, c := range conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// unpullable says whether an init container or another has an image that cannot
// be pulled.
func (m moment) unpullable() (inInit, inMain bool) {
	for _, c := range m.pod.Spec.InitContainers {
		inInit = inInit || m.pullFails(c)
	}
	for _, c := range m.pod.Spec.Containers {
		inMain = inMain || m.pullFails(c)
	}
	return inInit, inMain
}

func (m moment) pullFails(c corev1.Container) bool { return m.behaviour.noImage || !pullable(c.Image) }

func (n *node) running(m moment, ready bool) *corev1.PodStatus {
	return n.build(m, corev1.PodRunning, nil, func(corev1.Container) (corev1.ContainerState, bool) {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(m.now)}}, ready
	})
}

// pulling is a pod that cannot get an image. While an init container cannot, those
// after it do not start.
func (n *node) pulling(m moment, inInit bool, age time.Duration) decision {
	reason, wait := "ErrImagePull", backOffAfter-age
	if wait <= 0 {
		reason, wait = "ImagePullBackOff", 0
	}
	waiting := func(c corev1.Container) corev1.ContainerState {
		message := fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", c.Image, c.Image, c.Image)
		if reason == "ImagePullBackOff" {
			message = fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.Image, message)
		}
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	var initFault func(corev1.Container) *corev1.ContainerState
	if inInit {
		initFault = func(c corev1.Container) *corev1.ContainerState {
			if !m.pullFails(c) {
				return nil
			}
			s := waiting(c)
			return &s
		}
	}
	s := n.build(m, corev1.PodPending, initFault, func(c corev1.Container) (corev1.ContainerState, bool) {
		switch {
		case inInit:
			return initializing(), false
		case m.pullFails(c):
			return waiting(c), false
		default:
			return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(m.now)}}, true
		}
	})
	return m.reach(reason, s, wait)
}

func initializing() corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
}

// crashing is a pod between two crashes. It crashes again when the backoff is over.
func (n *node) crashing(m moment) decision {
	word := "crash"
	last := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
	if m.behaviour.oom {
		word, last.ExitCode, last.Reason = "oom", 137, "OOMKilled"
	}
	if stage := fmt.Sprintf("%s-%d", word, m.life.restarts); m.life.stage != stage || !m.now.Before(m.life.next) {
		m.life.restarts++
		m.life.next = m.now.Add(restartBackoff(m.life.restarts))
	}
	at := metav1.NewTime(m.life.next.Add(-restartBackoff(m.life.restarts)))
	last.StartedAt, last.FinishedAt = at, at
	s := n.build(m, corev1.PodRunning, nil, func(c corev1.Container) (corev1.ContainerState, bool) {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				restartBackoff(m.life.restarts), c.Name, m.pod.Name, m.pod.Namespace, m.pod.UID)}}, false
	})
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		ended := last
		ended.ContainerID = c.ContainerID
		c.LastTerminationState = corev1.ContainerState{Terminated: &ended}
	}
	return m.reach(fmt.Sprintf("%s-%d", word, m.life.restarts), s, m.life.next.Sub(m.now))
}

// restartBackoff is how long a kubelet waits after the nth crash: 10s, 20s, … 5m.
func restartBackoff(n int32) time.Duration {
	wait := firstRestart
	for ; n > 1 && wait < lastRestart; n-- {
		wait *= 2
	}
	return min(wait, lastRestart)
}
