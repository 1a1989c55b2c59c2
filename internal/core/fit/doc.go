// Package fit says whether a DaemonSet's pod may be on a node, and why not.
//
// Invariant: a verdict that says no carries at least one Reason. The rules are
// upstream's (labels, template nodeName, required node affinity, taints with the
// injected tolerations); capacity never matters here.
//
// It touches nothing: no I/O, clock, randomness or goroutine.
package fit
