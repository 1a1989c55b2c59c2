package controlplane

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// Warner says what is doubtful about an object that is created or changed, a line
// each. ns is its namespace, nil where it is not known.
type Warner func(obj runtime.Object, ns *corev1.Namespace) []string

const warningPlugin = "RollcallWarnings"

// warnings is an admission plugin that warns and refuses nothing.
type warnings struct {
	*admission.Handler
	lean       bool
	warners    map[schema.GroupVersionKind]Warner
	namespaces corelisters.NamespaceLister
}

var _ initializer.WantsExternalKubeInformerFactory = &warnings{}

func newWarnings(cfg Config) func(io.Reader) (admission.Interface, error) {
	return func(io.Reader) (admission.Interface, error) {
		return &warnings{Handler: admission.NewHandler(admission.Create, admission.Update), lean: cfg.Lean, warners: cfg.Warners}, nil
	}
}

// SetExternalKubeInformerFactory gives the plugin its view of the namespaces.
func (w *warnings) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	w.namespaces = f.Core().V1().Namespaces().Lister()
}

// ValidateInitialization is part of the interface of plugins.
func (w *warnings) ValidateInitialization() error { return nil }

// Validate warns.
func (w *warnings) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	if effect, ok := withoutController[a.GetResource().GroupResource()]; ok && w.lean && a.GetOperation() == admission.Create {
		warning.AddWarning(ctx, "", fmt.Sprintf("this control plane runs with --lean and has no controller for %s: %s", a.GetResource().Resource, effect))
	}
	warner := w.warners[a.GetKind()]
	if warner == nil {
		return nil
	}
	obj, err := legacyscheme.Scheme.ConvertToVersion(a.GetObject(), a.GetKind().GroupVersion())
	if err != nil {
		return nil //nolint:nilerr // a warning is not worth a refusal
	}
	ns, err := w.namespaces.Get(a.GetNamespace())
	if err != nil {
		ns = nil // it is younger than the cache
	}
	for _, text := range warner(obj, ns) {
		warning.AddWarning(ctx, "", text)
	}
	return nil
}
