// Package processtest starts the processes of a test, has them frozen and killed, and ends them
// with it.
//
//	func TestMain(m *testing.M) {
//		if key := os.Getenv(workerEnv); key != "" {
//			work(key) // which prints "holds" once it does, and reads lines
//			return
//		}
//		os.Exit(m.Run())
//	}
//
//	func TestWorker_…(t *testing.T) {
//		worker := processtest.Self(t, workerEnv+"=k")
//		worker.Says("holds")
//		require.NoError(t, worker.Freeze())
//		…
//		require.NoError(t, worker.Thaw())
//		worker.Tell("go on")
//	}
//
// [Start] starts any program: a [Process] is killed by the kernel when this one ends, however it
// does. [Self] starts the test binary once more, and [StartChild] another program of ours: with a
// [Child] a test talks line by line, and it is gone when the test is over.
//
// It runs on Linux only. What the lines mean is between a test and its child, but that a line
// which begins with "fails" fails the test.
package processtest
