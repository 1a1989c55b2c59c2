// Package node makes this Linux machine a Kubernetes node: containerd, upstream's
// kubelet, the images that need no registry, and the joining of a cluster.
//
// The node lives in a "box": one process, started again from this program, in
// mount and cgroup namespaces of its own. It sees private directories at the
// standard paths (/var/lib/kubelet, /var/log/pods, /run/containerd, ...), and all
// that it ever starts stays below one cgroup of each hierarchy.
//
// Invariant: what this package changes on the machine is written to
// DATA/state.json before it is changed, and Stop, or Cleanup after a crash, takes
// it all back. A process is only killed while it is in the box's cgroups, so a
// number that was given to another process is never hit.
//
// The network, the process numbers and the files of the machine are shared with
// the box: pods with hostNetwork, hostPID and hostPath see the machine.
//
// It imports neither the engine nor the control plane, and no kubelet: that is
// the package kubelet below it.
package node
