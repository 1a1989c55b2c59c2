package daemonset

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestOwnStateIsNeverTakenFromAUsersAnnotation(t *testing.T) {
	c := newCluster()
	c.ds.Annotations["state.rollcall.dev/stable"] = "forged"
	c.ds.Annotations["kubernetes.io/change-cause"] = "first"
	c.apply(c.decide())
	got := c.revisions[0].Annotations
	if _, forged := got["state.rollcall.dev/stable"]; forged || got["kubernetes.io/change-cause"] != "first" {
		t.Errorf("annotations of the revision: %v; want the change cause without the state", got)
	}
}

func TestConditionsOfOthersStayAndOwnOnesTellTheTruth(t *testing.T) {
	c := newCluster()
	foreign := appsv1.DaemonSetCondition{Type: "StatusUpdate", Status: corev1.ConditionTrue, Reason: "E2E"}
	c.ds.Status.Conditions = []appsv1.DaemonSetCondition{foreign}
	c.addNode("a", nil)
	c.addNode("b", nil)
	has := func(kind appsv1.DaemonSetConditionType, status corev1.ConditionStatus, reason string) {
		t.Helper()
		if !slices.ContainsFunc(c.ds.Status.Conditions, func(x appsv1.DaemonSetCondition) bool {
			return x.Type == kind && x.Status == status && x.Reason == reason
		}) {
			t.Errorf("no condition %s=%s (%s) in %+v", kind, status, reason, c.ds.Status.Conditions)
		}
	}
	c.apply(c.decide())
	has(Available, corev1.ConditionFalse, "NodesUnavailable")
	has(Progressing, corev1.ConditionTrue, "RolloutInProgress")
	c.settle(20 * time.Second)
	has(Available, corev1.ConditionTrue, "MinimumNodesAvailable")
	has(Progressing, corev1.ConditionTrue, "RolloutComplete")
	has("StatusUpdate", corev1.ConditionTrue, "E2E")
}
