package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Budget is how many nodes an update may touch at once.
type Budget struct {
	MaxUnavailable int // nodes without an available pod
	MaxSurge       int // nodes with a second pod
}

// BudgetOf scales a strategy to the number of desired nodes. OnDelete and a
// strategy without parameters have upstream's default of one unavailable node.
func BudgetOf(s appsv1.DaemonSetUpdateStrategy, desired int) Budget {
	b := Budget{MaxUnavailable: 1}
	if r := s.RollingUpdate; s.Type == appsv1.RollingUpdateDaemonSetStrategyType && r != nil {
		b = Budget{MaxUnavailable: scale(r.MaxUnavailable, desired, 1), MaxSurge: scale(r.MaxSurge, desired, 0)}
	}
	if desired > 0 && b.MaxUnavailable == 0 && b.MaxSurge == 0 {
		b.MaxUnavailable = 1
	}
	return b
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
