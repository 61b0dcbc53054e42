// Package faults is a test: each fault of the plan, on real processes, on each backend that it
// concerns.
//
//	make fault
//
// Workers, and the resource that they write to, are child processes of the test: the test binary
// itself. They record what they do (package history), which is judged when they have ended. The
// table that is printed in the end says what came of it.
package faults
