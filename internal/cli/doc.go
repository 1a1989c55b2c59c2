// Package cli has the commands that read a cluster: one file for each. They gather
// facts from any Kubernetes API and print what core returns.
//
// Invariant: they write nothing, and explain nothing themselves: every reason that
// is printed stands in a plan of core. It imports neither the engine nor anything
// that starts a server or a node.
package cli
