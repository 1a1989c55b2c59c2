// Package simnode runs nodes that only pretend, against a real API: Node objects
// with leases whose pods start, become ready, end, and misbehave as told.
//
// Invariants:
//   - every simulated node says so, by the label rollcall.dev/simulated=true, and
//     a Node without that label is never taken over nor are its pods played;
//   - a node costs one lease write each ten seconds and a bounded amount of memory:
//     all share one watch of pods, one of nodes, one queue and a few workers, and
//     no goroutine belongs to a node or a pod;
//   - a pod whose annotation is not understood stays Pending: what was meant as a
//     fault never passes as health;
//   - a write names the pod's UID and the version it was decided on, so a pod that
//     someone else changed meanwhile is looked at again first.
//
// It imports neither the engine nor the control plane, and decides nothing about
// DaemonSets. A pod that crashes is restarted whatever its restartPolicy, and no
// pod completes: these nodes are for agents.
package simnode
