// Package lint says what is doubtful about a DaemonSet before it runs: what the API
// accepts, and what will nonetheless not work. It refuses nothing.
package lint
