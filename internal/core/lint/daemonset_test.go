package lint

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

func agent(change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType},
		Template:       corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "i"}}}}}}
	change(ds)
	return ds
}

func surging(ds *appsv1.DaemonSet) {
	none, one := intstr.FromInt32(0), intstr.FromString("10%")
	ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &one}
}

func TestSurgeWithHostPortsIsDoubtful(t *testing.T) {
	port := func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9100, HostPort: 9100}}
	}
	ofHost := func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.HostNetwork = true
		ds.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 53, Protocol: corev1.ProtocolUDP}}
	}
	for name, c := range map[string]struct {
		ds   *appsv1.DaemonSet
		want string
	}{
		"host port and surge":      {agent(func(ds *appsv1.DaemonSet) { surging(ds); port(ds) }), "9100"},
		"host network and surge":   {agent(func(ds *appsv1.DaemonSet) { surging(ds); ofHost(ds) }), "53/UDP"},
		"host port without surge":  {agent(port), ""},
		"surge without host ports": {agent(surging), ""},
	} {
		got := DaemonSet(c.ds, nil)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || got[0].Code != fit.SurgeWithHostPorts || got[0].Asked != c.want) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

func TestPodSecurityNamesTheLowestLevelThatAdmits(t *testing.T) {
	hostPath := func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/log"}}}}
	}
	for name, c := range map[string]struct {
		ds            *appsv1.DaemonSet
		level, admits string
		field         string
	}{
		"hostPath under baseline":   {agent(hostPath), "baseline", "privileged", "hostPath volumes"},
		"hostPath under restricted": {agent(hostPath), "restricted", "privileged", `restricted volume type "hostPath"`},
		"plain under restricted":    {agent(func(*appsv1.DaemonSet) {}), "restricted", "baseline", "runAsNonRoot"},
		"plain under baseline":      {agent(func(*appsv1.DaemonSet) {}), "baseline", "", ""},
		"hostPath under privileged": {agent(hostPath), "privileged", "", ""},
		"hostPath without a level":  {agent(hostPath), "", "", ""},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pod-security.kubernetes.io/enforce": c.level}}}
		got := DaemonSet(c.ds, ns)
		if c.admits == "" {
			if len(got) > 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Asked != c.admits || !strings.Contains(got[0].Message, c.field) {
			t.Errorf("%s: %+v, want %s and %q", name, got, c.admits, c.field)
		}
	}
}
