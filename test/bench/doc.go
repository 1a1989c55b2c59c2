// Package bench measures the whole program. It asserts nothing: figures depend on
// the machine, and only those of one run can be compared.
package bench
