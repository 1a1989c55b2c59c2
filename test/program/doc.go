// Package program starts bin/rollcall for tests as a user would: on a free port, in
// a directory of its own, and ends it when the test does, however that ends.
package program
