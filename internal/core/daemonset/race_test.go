//go:build race

package daemonset

const (
	wantedSteps = 5_000
	twinPods    = 3
)
