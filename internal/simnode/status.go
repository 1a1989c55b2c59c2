package simnode

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// build makes a status in which every container is in the state that state gives,
// and ready or not. initFault gives the state of an init container that fails, nil
// for one that does not; those after it wait.
func (n *node) build(m moment, phase corev1.PodPhase, initFault func(corev1.Container) *corev1.ContainerState,
	state func(corev1.Container) (corev1.ContainerState, bool)) *corev1.PodStatus {
	p, at := m.pod, metav1.NewTime(m.now)
	s := &corev1.PodStatus{ObservedGeneration: p.Generation, Phase: phase, StartTime: p.Status.StartTime,
		HostIP: n.address(), HostIPs: []corev1.HostIP{{IP: n.address()}}, PodIP: n.address()}
	if m.life.ip != 0 {
		s.PodIP = podAddress(m.life.ip)
	}
	s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	if s.StartTime == nil {
		s.StartTime = &at
	}
	var incomplete, unready []string
	for _, c := range p.Spec.InitContainers {
		st := initStatus(p, c, at)
		if len(incomplete) > 0 {
			st = unstarted(c, initializing())
		} else if initFault != nil {
			if fault := initFault(c); fault != nil {
				st = unstarted(c, *fault)
			}
		}
		if !st.Ready {
			incomplete = append(incomplete, c.Name)
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, st)
	}
	for _, c := range p.Spec.Containers {
		st := mainStatus(m, c, state)
		if !st.Ready {
			unready = append(unready, c.Name)
		}
		s.ContainerStatuses = append(s.ContainerStatuses, st)
	}
	s.Conditions = conditions(p, incomplete, unready, at)
	return s
}

func mainStatus(m moment, c corev1.Container, state func(corev1.Container) (corev1.ContainerState, bool)) corev1.ContainerStatus {
	now, ready := state(c)
	st := unstarted(c, now)
	st.Ready, st.RestartCount = ready, m.life.restarts
	for _, old := range m.pod.Status.ContainerStatuses {
		if old.Name != c.Name {
			continue
		}
		st.LastTerminationState = old.LastTerminationState
		if now.Running != nil && old.State.Running != nil {
			st.State = old.State // it went on
		}
	}
	if now.Running != nil || m.life.restarts > 0 {
		st.ImageID, st.ContainerID = "sim://"+c.Image, containerID(m.pod, c)
	}
	st.Started = ptr.To(now.Running != nil)
	return st
}

// unstarted is a container that has not run yet.
func unstarted(c corev1.Container, state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: state, Started: ptr.To(false)}
}

// initStatus is an init container that did its work, or goes on beside the others.
func initStatus(p *corev1.Pod, c corev1.Container, at metav1.Time) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "sim://" + c.Image, ContainerID: containerID(p, c), Ready: true}
	if p.Status.StartTime != nil {
		at = *p.Status.StartTime
	}
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		st.Started, st.State.Running = ptr.To(true), &corev1.ContainerStateRunning{StartedAt: at}
		return st
	}
	st.Started = ptr.To(false)
	st.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at, ContainerID: st.ContainerID}
	return st
}

func containerID(p *corev1.Pod, c corev1.Container) string {
	return "sim://" + string(p.UID) + "/" + c.Name
}

// conditions are the five of a kubelet; one that stays as it was keeps its time.
func conditions(p *corev1.Pod, incomplete, unready []string, at metav1.Time) []corev1.PodCondition {
	var out []corev1.PodCondition
	add := func(t corev1.PodConditionType, reason, message string) {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: at, ObservedGeneration: p.Generation, Reason: reason, Message: message}
		if reason != "" {
			c.Status = corev1.ConditionFalse
		}
		if old := condition(p, t); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out = append(out, c)
	}
	failing := func(reason, message string, names []string) (string, string) {
		if len(names) == 0 {
			return "", ""
		}
		return reason, message + ": [" + strings.Join(names, " ") + "]"
	}
	reason, message := failing("ContainersNotInitialized", "containers with incomplete status", incomplete)
	add(corev1.PodReadyToStartContainers, "", "")
	add(corev1.PodInitialized, reason, message)
	reason, message = failing("ContainersNotReady", "containers with unready status", unready)
	gateReason, gateMessage := gates(p)
	if reason != "" {
		gateReason, gateMessage = reason, message
	}
	add(corev1.PodReady, gateReason, gateMessage)
	add(corev1.ContainersReady, reason, message)
	add(corev1.PodScheduled, "", "")
	return out
}

// gates says which of the pod's readiness gates is not open.
func gates(p *corev1.Pod) (reason, message string) {
	var closed []string
	for _, g := range p.Spec.ReadinessGates {
		switch c := condition(p, g.ConditionType); {
		case c == nil:
			closed = append(closed, `corresponding condition of pod readiness gate "`+string(g.ConditionType)+`" does not exist.`)
		case c.Status != corev1.ConditionTrue:
			closed = append(closed, `the status of pod readiness gate "`+string(g.ConditionType)+`" is not "True", but `+string(c.Status))
		}
	}
	if len(closed) == 0 {
		return "", ""
	}
	return "ReadinessGatesNotReady", strings.Join(closed, ", ")
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// statusPatch writes the status over the pod that was looked at, and no other. A
// strategic merge keeps what a patch leaves out, so what ended is said: a
// condition's old reason, an address that is no longer the pod's.
func statusPatch(p *corev1.Pod, s *corev1.PodStatus) ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var status map[string]any
	if err := json.Unmarshal(raw, &status); err != nil {
		return nil, err
	}
	list, _ := status["conditions"].([]any)
	for i, c := range s.Conditions {
		old := condition(p, c.Type)
		if old == nil {
			continue
		}
		fields := list[i].(map[string]any)
		if old.Reason != "" && c.Reason == "" {
			fields["reason"] = nil
		}
		if old.Message != "" && c.Message == "" {
			fields["message"] = nil
		}
	}
	dropAddress(status, "hostIPs", p.Status.HostIP, s.HostIP)
	dropAddress(status, "podIPs", p.Status.PodIP, s.PodIP)
	meta := struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion,omitempty"`
	}{p.UID, p.ResourceVersion}
	return json.Marshal(map[string]any{"metadata": meta, "status": status})
}

func dropAddress(status map[string]any, list, old, now string) {
	if old != "" && old != now {
		entries, _ := status[list].([]any)
		status[list] = append(entries, map[string]any{"$patch": "delete", "ip": old})
	}
}
