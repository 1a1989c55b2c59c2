package fit

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pinned says whether a pod waits for one node that is named in it, and asks for
// nothing but what Obstacles knows: then one node is looked at, and no scheduler of
// all nodes is needed. The answer depends on the pod alone, so that two schedulers
// agree on who places it.
func Pinned(p *corev1.Pod) (node string, yes bool) {
	s := &p.Spec
	node = pinnedTo(s)
	return node, node != "" && s.NodeName == "" && p.DeletionTimestamp == nil && s.SchedulerName == corev1.DefaultSchedulerName &&
		len(s.SchedulingGates) == 0 && len(s.ResourceClaims) == 0 && s.SchedulingGroup == nil && !spreads(s) && !hasPodAffinity(s) && plainVolumes(s)
}

// pinnedTo is the node of an affinity of one term with the node's name and nothing
// else, as the DaemonSet controller writes it.
func pinnedTo(s *corev1.PodSpec) string {
	required := requiredAffinity(s)
	if required == nil || len(required.NodeSelectorTerms) != 1 {
		return ""
	}
	term := required.NodeSelectorTerms[0]
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

func spreads(s *corev1.PodSpec) bool {
	for _, c := range s.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.ScheduleAnyway {
			return true
		}
	}
	return false
}

func hasPodAffinity(s *corev1.PodSpec) bool {
	a := s.Affinity
	return a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
}

// plainVolumes says that no volume has to be bound, attached or counted.
func plainVolumes(s *corev1.PodSpec) bool {
	for i := range s.Volumes {
		v := &s.Volumes[i].VolumeSource
		if v.HostPath == nil && v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil && v.Projected == nil && v.DownwardAPI == nil &&
			v.Image == nil && v.NFS == nil {
			return false
		}
	}
	return true
}
