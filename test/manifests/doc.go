// Package manifests applies real manifests to a running Rollcall with a varied
// fleet of simulated nodes and counts the pods of every DaemonSet.
//
// Invariant: the expected count comes from this package's own small reading of
// selectors, affinity, taints and tolerations. It must not import internal/core,
// or component-helpers, which core uses: a shared mistake would go unseen.
package manifests
