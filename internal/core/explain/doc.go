// Package explain says why a node has no agent, an old one or one that is not ready,
// and what the smallest thing is that would change it.
//
// Invariant: it starts from daemonset.Decide's roll call and changes no answer of it.
// Present, missing or excluded is decided there; what is known beyond a DaemonSet's
// own objects (events, other pods, what admission needs) only makes the last reason
// of a line more exact. It concludes from an absence only what was wholly read.
package explain
