// Package guardtest says what a guard.Locker is, as a suite of checks that every backend passes. A
// backend's own test needs five lines:
//
//	func TestLocker(t *testing.T) {
//		guardtest.Run(t, guardtest.Store{
//			New: func(t testing.TB) guard.Locker { return mystore.New(startServer(t)) },
//		})
//	}
//
// Benchmark measures a Locker, and Scripted is one that answers as a test tells it to: for the tests
// of programs that use guard.
//
// The suite sees answers only. It does not prove that a store keeps what it was told when it crashes
// or fails over, and its random runs find a race with luck, not for certain. It uses testify and is meant
// to be imported from tests alone.
package guardtest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A Store is how the suite gets at a store, and what that store is able to do. Only New is required:
// checks of an ability that is left out do not exist, and do not show as skipped.
type Store struct {
	// New returns a Locker over a store that is empty, without the fences of earlier checks too: a
	// server that was flushed will do. It is called once in each check, and checks never run at the
	// same time. What it starts it has to end in t.Cleanup.
	New func(t testing.TB) guard.Locker
	// Again returns a Locker over the store of l, as another process would have it: with connections
	// of its own. Without it, l itself plays the other process.
	Again func(t testing.TB, l guard.Locker) guard.Locker
	// Flush makes the store that New returned last forget all it knows, also how far its fences had
	// come: what FLUSHALL does, or a failover to an empty replica.
	Flush func(t testing.TB)
	// Freeze makes the store that New returned last stop answering, without closing connections, until
	// thaw is called: what SIGSTOP does.
	Freeze func(t testing.TB) (thaw func())
	// Bubble runs each check in a bubble of testing/synctest, where time costs nothing. It is for
	// stores without a network, and not for Benchmark.
	Bubble bool
	// Owners says that the store keeps owners: a second claim of the holder's Owner is granted, with
	// the same fence, and the key is free when the last of its claims has ended. Without it such a
	// claim has to be refused like any other.
	Owners bool
	// Ledger says that the store is a guard.Ledger, too.
	Ledger bool
	// Notifies says that the store is a guard.Notifier, too.
	Notifies bool
	// Queues says that the store is a guard.Queuer, too.
	Queues bool
	// MinTTL is the shortest TTL that the store can grant. Leave it 0, unless the store counts how long
	// its answers took, as a quorum does, and refuses what would be over at once.
	MinTTL time.Duration
	// Settled waits until all parts of the store know that the key is done, as a claim of it was released just now. It is for stores
	// whose calls return before the last part has been told, as those of a quorum do. Leave it nil if there is none such.
	Settled func(t testing.TB, key string)
	// Keys are further keys to try, such as those that look like the names by which the store keeps
	// its own things.
	Keys []string
}

// A check is one thing that a Locker has to do: a subtest of Run.
type check struct {
	name  string
	needs func(Store) bool // nil if every store is able to do it
	run   func(s *subject)
}

// Run checks in subtests that the store's Locker does all that a guard.Locker has to do. On a store that
// keeps real time it takes a few seconds, on two cores with -race too; with -short, less.
func Run(t *testing.T, s Store) {
	s.run(t, allChecks())
}

func allChecks() []check {
	return slices.Concat(
		claimChecks(),
		labelChecks(),
		renewChecks(),
		releaseChecks(),
		expiryChecks(),
		markerChecks(),
		repeatChecks(),
		recordChecks(),
		fenceChecks(),
		ownerChecks(),
		quorumChecks(),
		keyChecks(),
		batchChecks(),
		contextChecks(),
		freezeChecks(),
		ledgerChecks(),
		noticeChecks(),
		queueChecks(),
		exclusionChecks(),
	)
}

// RunExclusion is the part of Run in which several workers claim, renew, repeat, release and abandon
// leases on a few keys, at random. In a bubble, workers take turns more evenly than on a real machine:
// a store with Bubble is worth running here once more without.
//
// A failure names its seed. With GUARDTEST_SEED=<seed> in the environment, each worker draws the same
// random numbers again; how the workers interleave is still up to the scheduler.
func RunExclusion(t *testing.T, s Store) { s.run(t, exclusionChecks()) }

func (s Store) run(t *testing.T, checks []check) {
	t.Helper()
	for _, c := range checks {
		if c.needs != nil && !c.needs(s) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if s.Bubble {
				synctest.Test(t, func(t *testing.T) { c.run(newSubject(t, s)) })
				return
			}
			c.run(newSubject(t, s))
		})
	}
}
