package upstream

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/utils/ptr"

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

// TestRevisionsHaveUpstreamsNames: a DaemonSet taken over from upstream's
// controller finds its pods by this hash; another one would replace them all.
func TestRevisionsHaveUpstreamsNames(t *testing.T) {
	for _, collisions := range []*int32{nil, ptr.To[int32](0), ptr.To[int32](3)} {
		ds := &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "agent", UID: "u"},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b", "c": "d"}, Annotations: map[string]string{"x": "y"}},
					Spec: corev1.PodSpec{HostNetwork: true, NodeSelector: map[string]string{"os": "linux"},
						Containers: []corev1.Container{{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
							Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}}}}},
				},
			},
			Status: appsv1.DaemonSetStatus{CollisionCount: collisions},
		}
		want := "agent-" + controller.ComputeHash(&ds.Spec.Template, collisions)
		plan := daemonset.Decide(daemonset.Input{Now: time.Unix(0, 0), DaemonSet: ds})
		if len(plan.Actions) != 1 || plan.Actions[0].Verb != daemonset.CreateRevision || plan.Actions[0].Revision.Name != want {
			t.Errorf("collisions %v: got\n%swant the revision %s", collisions, plan, want)
		}
	}
}
