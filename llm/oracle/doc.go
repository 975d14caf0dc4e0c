// Package oracle holds package llm against the providers' own Go libraries: both
// read the same recorded responses and must hear the same, and both must ask for
// the same in the same words. It is a module of its own, so that nobody who builds
// Semel has to build these libraries, which are several times its size.
//
// It has tests only. Where the two differ on purpose, the tables in differences_test.go
// and requests_test.go say so and why; a difference that is not in them fails, and so
// does an entry that is no difference any more.
package oracle
