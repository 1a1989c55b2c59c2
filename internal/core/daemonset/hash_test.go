package daemonset

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// sample is a DaemonSet that uses many kinds of fields.
func sample() *appsv1.DaemonSet {
	user, grace, hostPath := int64(1000650000), int64(30), corev1.HostPathDirectoryOrCreate
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent", UID: "uid"},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"note": "<a & b>"}},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyAlways, HostNetwork: true,
				SecurityContext: &corev1.PodSecurityContext{RunAsUser: &user},
				Volumes:         []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/v", Type: &hostPath}}}},
				Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: "c", Image: "i:1", Args: []string{"--x=\u00e9"},
					Resources:     corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}},
					LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")}}, PeriodSeconds: 10}}},
			},
		}},
	}
}

// TestUpstreamsHashAndData holds bytes that upstream's own functions gave for the
// same template: with others, taking over a DaemonSet would replace every pod.
func TestUpstreamsHashAndData(t *testing.T) {
	ds := sample()
	seven := int32(7)
	for _, c := range []struct {
		count *int32
		want  string
	}{{nil, "5ffffd96f5"}, {new(int32), "85b75f545f"}, {&seven, "5878ddb59b"}} {
		if got := templateHash(&ds.Spec.Template, c.count); got != c.want {
			t.Errorf("hash %s, want %s", got, c.want)
		}
	}
	data, err := templateData(ds)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"template":{"$patch":"replace","metadata":{"annotations":{"note":"\u003ca \u0026 b\u003e"},"labels":{"a":"1","b":"2"}},` +
		`"spec":{"containers":[{"args":["--x=é"],"image":"i:1","livenessProbe":{"httpGet":{"path":"/","port":"http"},"periodSeconds":10},"name":"c",` +
		`"resources":{"requests":{"cpu":"100m","memory":"1Gi"}}}],"hostNetwork":true,"restartPolicy":"Always","securityContext":{"runAsUser":1000650000},` +
		`"terminationGracePeriodSeconds":30,"tolerations":[{"operator":"Exists"}],"volumes":[{"hostPath":{"path":"/v","type":"DirectoryOrCreate"},"name":"v"}]}}}}`
	if string(data) != want {
		t.Errorf("data\n%s\nwant\n%s", data, want)
	}
}

func TestPodNames(t *testing.T) {
	for _, name := range []string{"a", "with.dots", strings.Repeat("x", 51) + "." + strings.Repeat("y", 100), strings.Repeat("x", 51) + "-y", strings.Repeat("z", 253)} {
		seen := map[string]bool{}
		for salt := range int32(3) {
			ds := sample()
			ds.Name = name
			got := podName(ds, "node-uid", "hash", Place{LastPod: "pod-uid", Salt: salt})
			if errs := validation.IsDNS1123Subdomain(got); len(errs) > 0 || len(got) > 63 || seen[got] {
				t.Errorf("%q: %v", got, errs)
			}
			seen[got] = true
		}
	}
}
