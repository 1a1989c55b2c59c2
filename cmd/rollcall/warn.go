package main

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/internal/controlplane"
	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
	"github.com/rollcall-dev/rollcall/internal/core/lint"
)

// warners are what this program says when an object is applied.
var warners = map[schema.GroupVersionKind]controlplane.Warner{
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"): func(obj runtime.Object, ns *corev1.Namespace) []string {
		ds := obj.(*appsv1.DaemonSet)
		var out []string
		for _, r := range append(daemonset.CheckSettings(ds.Annotations), lint.DaemonSet(ds, ns)...) {
			text := r.Message
			if r.Remedy != "" {
				text += ": " + r.Remedy
			}
			out = append(out, text)
		}
		return out
	},
	corev1.SchemeGroupVersion.WithKind("Namespace"): func(obj runtime.Object, _ *corev1.Namespace) []string {
		var out []string
		for _, r := range daemonset.CheckSettings(obj.(*corev1.Namespace).Annotations) {
			out = append(out, r.Message+": "+r.Remedy)
		}
		return out
	},
}
