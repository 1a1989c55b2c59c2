package controlplane

import "k8s.io/apimachinery/pkg/runtime/schema"

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
