package lint

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
	"github.com/rollcall-dev/rollcall/internal/core/rollout"
)

// DaemonSet checks one DaemonSet; ns is its namespace, nil where it is not known.
func DaemonSet(ds *appsv1.DaemonSet, ns *corev1.Namespace) []fit.Reason {
	var out []fit.Reason
	var ports []string
	for _, p := range fit.HostPorts(&ds.Spec.Template.Spec) {
		ports = append(ports, p.String())
	}
	if len(ports) > 0 && rollout.Surges(ds.Spec.UpdateStrategy) {
		out = append(out, fit.Reason{Code: fit.SurgeWithHostPorts, Object: "spec.updateStrategy.rollingUpdate.maxSurge", Asked: strings.Join(ports, ", "),
			Message: fmt.Sprintf("spec.updateStrategy.rollingUpdate.maxSurge: an update cannot proceed, as two pods cannot share host port %s of a node", strings.Join(ports, ", ")),
			Remedy:  "set maxSurge to 0 and maxUnavailable to 1"})
	}
	if r := podSecurity(ds, ns); r != nil {
		out = append(out, *r)
	}
	return out
}

// podSecurity says which fields the level that the namespace enforces will refuse,
// and which level would admit them.
func podSecurity(ds *appsv1.DaemonSet, ns *corev1.Namespace) *fit.Reason {
	if ns == nil || ns.Labels[api.EnforceLevelLabel] == "" {
		return nil
	}
	latest := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	wanted, errs := api.PolicyToEvaluate(ns.Labels, api.Policy{Enforce: latest, Audit: latest, Warn: latest})
	if len(errs) > 0 || wanted.Enforce.Level == api.LevelPrivileged {
		return nil
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil
	}
	refused := func(level api.Level) policy.AggregateCheckResult {
		return policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: wanted.Enforce.Version},
			&ds.Spec.Template.ObjectMeta, &ds.Spec.Template.Spec))
	}
	result := refused(wanted.Enforce.Level)
	if result.Allowed {
		return nil
	}
	admits := api.LevelPrivileged
	if wanted.Enforce.Level == api.LevelRestricted && refused(api.LevelBaseline).Allowed {
		admits = api.LevelBaseline
	}
	return &fit.Reason{Code: fit.PodSecurityRefuses, Object: "namespace/" + ns.Name, Limit: string(wanted.Enforce.Level), Asked: string(admits),
		Message: fmt.Sprintf("no pod of it will be admitted: namespace %s enforces Pod Security level %q: %s", ns.Name, wanted.Enforce.String(), result.ForbiddenDetail()),
		Remedy:  fmt.Sprintf("the lowest level that admits it is %s: kubectl label namespace %s %s=%s --overwrite, or change the fields", admits, ns.Name, api.EnforceLevelLabel, admits)}
}
