// Package engine carries out what core decides: it watches, gathers one
// DaemonSet's facts, calls daemonset.Decide and applies the plan.
//
// Invariant: a DaemonSet is acted on only when the caches have reached the
// engine's own last writes to it, and every write can be repeated: creates carry
// names derived from their place, deletes carry the pod's UID.
//
// It works against any Kubernetes API and decides nothing: an if on a field of a
// spec or a status belongs in core.
package engine
