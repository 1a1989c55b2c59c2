// Package e2e starts the whole program, as a user would, on a free port and in a
// temporary directory.
package e2e
