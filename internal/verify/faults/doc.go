// Package faults is a test: each fault of the plan, on real processes, on each backend that it
// concerns.
//
//	go run ./internal/verify/cmd/proof fault
//
// Workers, and the resource that they write to, are child processes of the test: the test binary
// itself. They record what they do (package history). The test judges the record when they have
// ended, and prints a table of the results.
package faults
