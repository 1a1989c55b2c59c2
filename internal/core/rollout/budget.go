package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Budget scales a strategy to the number of desired nodes: how many of them may be
// without an available pod, and how many may have a second pod. OnDelete and a
// strategy without parameters have the default of one unavailable node.
func Budget(s appsv1.DaemonSetUpdateStrategy, desired int) (maxUnavailable, maxSurge int) {
	r := s.RollingUpdate
	if s.Type != appsv1.RollingUpdateDaemonSetStrategyType || r == nil {
		return 1, 0
	}
	maxUnavailable, maxSurge = scale(r.MaxUnavailable, desired, 1), scale(r.MaxSurge, desired, 0)
	if maxUnavailable == 0 && maxSurge == 0 && desired > 0 {
		maxUnavailable = 1
	}
	return maxUnavailable, maxSurge
}

// Surges says whether new pods are made beside old ones, whatever the number of
// nodes is.
func Surges(s appsv1.DaemonSetUpdateStrategy) bool {
	_, surge := Budget(s, 1)
	return surge > 0
}

// scale takes a value that cannot be read as the default; validation lets none
// such through.
func scale(v *intstr.IntOrString, desired, otherwise int) int {
	if v == nil {
		return otherwise
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, desired, true)
	if err != nil {
		return otherwise
	}
	return n
}
