// Package daemonset decides what is to be done for one DaemonSet: facts in, a
// Plan out.
//
// Invariant: the same facts, in any order, give the same plan; a plan carried out
// and decided again at the same time gives no action; never two pods of one
// revision on a node; an available pod is taken down only within the budget.
//
// Departures from upstream that a reader might take for faults: an old pod that is
// available is not replaced while its node is not ready; a node that no longer
// reports is left alone until it does; an old pod on a node that is no longer
// eligible is ended only by a surging update; of several pods on a node an
// available one is kept; a pod that ended under an old template is replaced
// without backoff; after a pod that ended the next one comes a second later; and a
// surge goes no further while new pods stand where they broke what was there.
//
// It touches nothing: no I/O, clock, randomness, goroutine, log or context. The
// rules are upstream's controller's; docs/differences.md names each departure.
package daemonset
