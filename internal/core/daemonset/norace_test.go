//go:build !race

package daemonset

// How many random plans are checked at least, and how many states a pod has in the
// twin's largest fleets. The race detector makes each many times slower.
const (
	wantedSteps = 100_000
	twinPods    = 7
)
