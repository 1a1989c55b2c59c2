// Package upstream compares what Rollcall writes with upstream's own code, where
// a client could tell the difference.
package upstream
