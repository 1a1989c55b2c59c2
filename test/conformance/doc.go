// Package conformance runs upstream's own end-to-end specs for DaemonSets and
// ControllerRevisions against the whole program with simulated nodes. It is a module
// of its own: the specs' framework brings what the product must not depend on.
package conformance
