package controlplane

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
)

// leanControllers are those that agents need: nothing else has a life in a
// lean control plane.
var leanControllers = []string{
	"serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller",
	"namespace-controller", "garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller",
	"pod-garbage-collector-controller", "resourcequota-controller", "clusterrole-aggregation-controller",
	"certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller",
	"certificatesigningrequest-cleaner-controller", "bootstrap-signer-controller", "token-cleaner-controller",
	"persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
	"node-ipam-controller", "endpointslice-controller", "disruption-controller",
}

// withoutController are the kinds for which nothing happens in a lean control
// plane, and what it is that does not.
var withoutController = map[schema.GroupResource]string{
	{Group: "apps", Resource: "deployments"}:                     "it gets no pods",
	{Group: "apps", Resource: "replicasets"}:                     "it gets no pods",
	{Group: "apps", Resource: "statefulsets"}:                    "it gets no pods",
	{Group: "", Resource: "replicationcontrollers"}:              "it gets no pods",
	{Group: "batch", Resource: "jobs"}:                           "it gets no pods",
	{Group: "batch", Resource: "cronjobs"}:                       "it starts no jobs",
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}: "it scales nothing",
	{Group: "", Resource: "persistentvolumeclaims"}:              "it is not bound to a volume",
}

const leanPlugin = "RollcallLean"

// leanWarning is an admission plugin that says so when an object is created for
// which a lean control plane has no controller. It refuses nothing.
type leanWarning struct{ *admission.Handler }

func newLeanWarning(io.Reader) (admission.Interface, error) {
	return leanWarning{admission.NewHandler(admission.Create)}, nil
}

// Validate warns.
func (leanWarning) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if effect, ok := withoutController[a.GetResource().GroupResource()]; ok && a.GetSubresource() == "" {
		warning.AddWarning(ctx, "", fmt.Sprintf("this control plane runs with --lean and has no controller for %s: %s", a.GetResource().Resource, effect))
	}
	return nil
}
