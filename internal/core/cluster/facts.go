package cluster

import (
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Facts are the objects of a cluster, in any order, read at slightly different moments.
type Facts struct {
	Now         time.Time // when they were read
	Version     string    // of the API server, as in v1.37.2; "" where unknown
	DaemonSets  []*appsv1.DaemonSet
	Revisions   []*appsv1.ControllerRevision
	Nodes       []*corev1.Node
	Pods        []*corev1.Pod // of all namespaces where they may be read; their environment may be empty
	Namespaces  []*corev1.Namespace
	Events      []*corev1.Event
	ConfigMaps  []*metav1.PartialObjectMetadata
	Secrets     []*metav1.PartialObjectMetadata
	Accounts    []*metav1.PartialObjectMetadata // service accounts
	Classes     []*schedulingv1.PriorityClass
	Quotas      []*corev1.ResourceQuota
	LimitRanges []*corev1.LimitRange
	Budgets     []*policyv1.PodDisruptionBudget
	Claims      []*corev1.PersistentVolumeClaim
	Services    []*corev1.Service
	Mutating    []*admissionv1.MutatingWebhookConfiguration
	Validating  []*admissionv1.ValidatingWebhookConfiguration
	Usage       []Usage // of containers, where metrics.k8s.io is to be had
	Unread      []Unread
}

// Usage is what a container used when it was last measured.
type Usage struct {
	Namespace, Pod, Container string
	Used                      corev1.ResourceList
}

// Kind names one list of the facts, as kubectl spells the resource.
type Kind string

// The kinds.
const (
	DaemonSets  Kind = "daemonsets"
	Revisions   Kind = "controllerrevisions"
	Nodes       Kind = "nodes"
	Pods        Kind = "pods"
	Namespaces  Kind = "namespaces"
	Events      Kind = "events"
	ConfigMaps  Kind = "configmaps"
	Secrets     Kind = "secrets"
	Accounts    Kind = "serviceaccounts"
	Classes     Kind = "priorityclasses"
	Quotas      Kind = "resourcequotas"
	LimitRanges Kind = "limitranges"
	Budgets     Kind = "poddisruptionbudgets"
	Claims      Kind = "persistentvolumeclaims"
	Services    Kind = "services"
	Mutating    Kind = "mutatingwebhookconfigurations"
	Validating  Kind = "validatingwebhookconfigurations"
	Metrics     Kind = "pods.metrics.k8s.io"
)

// Unread is a kind of which nothing, or not all, was read, and why.
type Unread struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // "" for all of them
	Why       string `json:"why"`
}

// Knows says whether all objects of the kind in the namespace were read, so that
// one that is not there does not exist. "" asks for every namespace.
func (f *Facts) Knows(kind Kind, namespace string) bool {
	return !slices.ContainsFunc(f.Unread, func(u Unread) bool {
		return u.Kind == kind && (u.Namespace == "" || namespace == "" || u.Namespace == namespace)
	})
}
