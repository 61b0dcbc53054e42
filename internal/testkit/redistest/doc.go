// Package redistest starts real redis-server processes for a test and ends them with it.
//
//	func TestLock_survivesAFrozenServer(t *testing.T) {
//		server := redistest.Start(t)
//		client := server.Client(t)
//		server.Freeze()
//		…
//		server.Thaw()
//	}
//
// [Start] gives one server, [StartWithClock] one whose wall clock can be moved, [StartN] several
// independent ones, [StartSentinel] a master with a replica under three sentinels, [StartCluster]
// three masters, and [StartProxy] a proxy in front of any of them that loses, holds and delays
// what passes. Everything listens on 127.0.0.1 and is gone when the test is over, even if the test
// binary is killed.
//
// It runs on Linux only. It does not download Redis: without redis-server in PATH the test is
// left out, see [Require]. It does not simulate: time is real, but for the wall clock of
// StartWithClock, and a fault that needs another disk or kernel has to be made elsewhere.
package redistest
