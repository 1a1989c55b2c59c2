//go:build race

package daemonset

const underRace = true
