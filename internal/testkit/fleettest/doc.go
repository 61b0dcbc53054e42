// Package fleettest runs a fleet of processes that want one lock, kills some of them, and has a
// witness that is not the lock see whether two held it at the same time.
//
//	func TestMain(m *testing.M) {
//		if text := os.Getenv(memberEnv); text != "" {
//			fleettest.Serve(text, open)
//			return
//		}
//		os.Exit(m.Run())
//	}
//
//	func TestFleet_…(t *testing.T) {
//		f := fleettest.New(t, memberEnv)
//		a, b := f.Start("old", server.Addr()), f.Start("new", server.Addr())
//		…
//		f.Kill(a)
//		runs := f.Check()
//	}
package fleettest
