// Package daemonset decides what is to be done for one DaemonSet: facts in, a
// Plan out.
//
// Invariant: the same facts, in any order, give the same plan; a plan carried out
// and decided again at the same time gives no action; never two pods of one
// revision on a node; an available pod is taken down only within the budget.
//
// It touches nothing: no I/O, clock, randomness, goroutine, log or context. The
// rules are upstream's controller's; docs/differences.md names each departure.
package daemonset
