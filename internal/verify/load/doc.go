// Package load has one process hold and wait for very many leases on a real redis-server, and
// looks at what is lost: nothing may be. All of it is in the tests.
//
// Every lease that is held is valid to the end, every caller that waits gets in, one at a time and
// under a fence that grows, and afterwards memory, goroutines, connections and keys are where they
// were before. What it cost is logged.
//
// go test has a short form. The full one, of a hundred thousand leases and as many waiters for a
// minute each, has no race detector, which cannot watch so many goroutines:
//
//	go run ./internal/verify/cmd/proof load
package load
