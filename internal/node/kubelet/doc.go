// Package kubelet is the one place that compiles upstream's kubelet, so that the
// rest of node builds in seconds.
//
// Invariant: it runs in a process of its own; the kubelet ends its process when
// it pleases. It must not be imported by anything but cmd.
package kubelet
