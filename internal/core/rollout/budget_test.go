package rollout

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		unavailable, surge string
		desired            int
		wantU, wantS       int
	}{
		{"1", "0", 5, 1, 0},
		{"10%", "0", 1, 1, 0},
		{"10%", "0", 10, 1, 0},
		{"10%", "0", 11, 2, 0},
		{"10%", "0", 0, 0, 0},
		{"0", "0", 5, 1, 0},
		{"0%", "0%", 5, 1, 0},
		{"0", "20%", 6, 0, 2},
		{"7", "0", 3, 7, 0},
		{"nonsense", "0", 3, 1, 0},
	} {
		u, s := intstr.Parse(c.unavailable), intstr.Parse(c.surge)
		gotU, gotS := Budget(appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &u, MaxSurge: &s}}, c.desired)
		if gotU != c.wantU || gotS != c.wantS {
			t.Errorf("Budget(%s, %s) of %d = %d, %d, want %d, %d", c.unavailable, c.surge, c.desired, gotU, gotS, c.wantU, c.wantS)
		}
	}
	if u, s := Budget(appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}, 5); u != 1 || s != 0 {
		t.Errorf("OnDelete has budget %d, %d", u, s)
	}
}
