// Package simnode runs nodes that only pretend, against a real API: Node objects
// with leases whose pods start, become ready, end, and misbehave as told.
//
// Invariant: every simulated node says so, by the label
// rollcall.dev/simulated=true, and costs one lease write each ten seconds and a
// bounded amount of memory; no goroutine belongs to a node or a pod.
//
// It imports neither the engine nor the control plane, and decides nothing about
// DaemonSets.
package simnode
