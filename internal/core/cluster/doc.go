// Package cluster holds what is known of a cluster at nearly one moment: the objects
// that the reading commands look at, wherever they come from.
//
// Invariant: what was not read is told apart from what does not exist; a conclusion
// from an absence asks Knows first. The package reads nothing itself and changes
// none of the objects.
package cluster
