// Package servers is a test: the conformance suite of guard/guardtest, and a few faults, on each
// Redis-like server and in each way to run and to reach one.
//
//	go run ./internal/verify/cmd/proof servers
//
// go test runs a part of it on the redis-server of PATH. The full form runs everything on the
// servers of ONERUN_REDIS_SERVERS, which is a list of name=program, and writes the table in
// docs/servers.md. A program takes the arguments of redis-server.
package servers
