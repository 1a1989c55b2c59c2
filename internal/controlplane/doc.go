// Package controlplane runs a Kubernetes control plane in one process: etcd,
// the API server, upstream's controllers (all but the DaemonSet controller) and
// upstream's scheduler.
//
// Invariant: what the API server has acknowledged is on disk (etcd with fsync),
// and every component but the API server's own loopback client goes through the
// full filter chain as an identity of its own.
//
// It imports neither the engine nor the nodes; it knows nothing of DaemonSets.
package controlplane
