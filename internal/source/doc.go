// Package source reads a cluster's facts, from its API or from a dump in a file, and
// writes such a dump.
//
// Invariant: nothing is written to a cluster, no Secret's data is ever asked for, and
// what could not be read is named. It explains nothing.
package source
