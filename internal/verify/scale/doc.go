// Package scale is a test that measures what one server carries and what a fleet of processes
// costs:
//
//	go run ./internal/verify/cmd/proof scale
//
// go test has a short form, which only shows that everything still works. The full form writes the
// tables in docs/scale.md.
package scale
