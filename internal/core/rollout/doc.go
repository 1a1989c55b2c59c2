// Package rollout holds the arithmetic of a DaemonSet's update: its budget.
//
// Invariant: percentages round up, and a budget of nothing at all becomes one
// unavailable node, so that no rollout stands still for ever.
//
// It touches nothing, and knows neither nodes nor pods.
package rollout
