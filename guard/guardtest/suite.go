// Package guardtest specifies guard.Locker by a suite of checks that every backend passes. A
// backend's own test needs five lines:
//
//	func TestLocker(t *testing.T) {
//		guardtest.Run(t, guardtest.Backend{
//			New: func(t testing.TB) guard.Locker { return mystore.New(startServer(t)) },
//		})
//	}
//
// Benchmark measures a Locker. For tests of programs that use guard, Scripted is a Locker that
// answers as the test specifies.
//
// The suite sees only the answers of a store. It does not prove that the store keeps its data
// through a crash or a failover. Its random runs find a race only with some luck. The package uses
// testify and is meant to be imported by tests only.
package guardtest

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A Backend describes a backend to the suite: how to use it, and which abilities it has. Only New
// is required. Checks of an ability that is not set are left out, rather than skipped.
type Backend struct {
	// New returns a Locker over an empty store, which must not have the fences of earlier checks
	// either. A flushed server is empty. New is called once in each check, and checks do not run at
	// the same time, unless Parallel is set. Whatever New starts, it must stop in t.Cleanup.
	New func(t testing.TB) guard.Locker
	// Again returns a Locker over the store of l for another process, with its own connections. If
	// it is nil, l itself takes the place of the other process.
	Again func(t testing.TB, l guard.Locker) guard.Locker
	// Flush makes the store of the last Locker from New forget everything, including its fences,
	// as FLUSHALL or a failover to an empty replica does.
	Flush func(t testing.TB)
	// Freeze makes the store of the last Locker from New stop answering until thaw is called,
	// without closing connections, as SIGSTOP does.
	Freeze func(t testing.TB) (thaw func())
	// Bubble runs each check in a bubble of testing/synctest, in virtual time. It is for stores
	// without a network. Benchmark ignores it.
	Bubble bool
	// Owners means that the backend keeps owners. A second claim of the holder's Owner is then
	// granted, with the same fence. The key is free when the last of these claims has ended.
	// Without Owners, such a claim must be refused like any other.
	Owners bool
	// Ledger means that the Locker is a driver.Ledger, too.
	Ledger bool
	// Inspects means that the Locker is a driver.Inspector, too.
	Inspects bool
	// Notifies means that the Locker is a driver.Subscriber whose waiters need not poll.
	Notifies bool
	// Queues means that the Locker keeps a queue (driver.Description.Queue).
	Queues bool
	// Shares are numbers of claims that may hold a key at a time, see driver.Claim.MaxHolders. The
	// Locker then has driver.Description.Shares.
	Shares []int
	// MaxSharedTTL is the longest TTL of a claim that shares a key, if that is bounded.
	MaxSharedTTL time.Duration
	// MinTTL is the shortest TTL that the backend can grant. It is 0 for most backends. A quorum
	// needs it, because it counts how long its answers took and refuses a grant that would be over
	// at once.
	MinTTL time.Duration
	// Late is how much later than its TTL the store may free a key, a minimum hold and a marker. It
	// is 0 for most backends. One that counts in whole seconds needs it.
	Late time.Duration
	// Parallel lets checks run at the same time, because most of them wait. New then returns a
	// Locker over a store of its own each time, and Flush empties that of the check of that name.
	// Checks that call Freeze run one by one, after all others.
	Parallel bool
	// Settled waits until all parts of the store have done what they were asked for. It is for
	// backends whose calls return before the last part has answered, such as a quorum. It is nil
	// for all others.
	Settled func(t testing.TB)
	// Keys are additional keys to check, such as keys that resemble the backend's internal names.
	Keys []string
}

// A check is one requirement on a Locker, and a subtest of Run.
type check struct {
	name  string
	needs func(Backend) bool // nil if the check needs no ability
	run   func(s *subject)
	alone bool // it freezes the store
}

// Run checks, in subtests, that the backend's Locker does everything that a guard.Locker must do.
// In real time it takes a few seconds, even on two cores with -race, and less with -short.
func Run(t *testing.T, backend Backend) {
	backend.run(t, allChecks())
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
		notificationChecks(),
		queueChecks(),
		sharingChecks(),
		abandonedChecks(),
		inspectionChecks(),
		exclusionChecks(),
	)
}

// RunExclusion runs only the checks in which several workers use a few keys at random. In a
// bubble, workers alternate more evenly than on a real machine. So run a backend that sets Bubble
// here as well, without Bubble.
//
// A failure logs its seed. With GUARDTEST_SEED=<seed> in the environment, each worker uses the
// same random numbers again. The order of the workers still depends on the scheduler.
func RunExclusion(t *testing.T, backend Backend) { backend.run(t, exclusionChecks()) }

// maxParallel is how many checks run at the same time.
const maxParallel = 16

func (b Backend) run(t *testing.T, checks []check) {
	t.Helper()
	var parallel sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	var alone []check
	for _, c := range checks {
		switch {
		case c.needs != nil && !c.needs(b):
		case !b.Parallel || c.alone:
			alone = append(alone, c)
		default:
			// Not by t.Parallel: its limit is the number of processors.
			parallel.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				b.check(t, c)
			})
		}
	}
	parallel.Wait()
	for _, c := range alone {
		b.check(t, c)
	}
}

// check runs a check as a subtest.
func (b Backend) check(t *testing.T, c check) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		if b.Bubble {
			synctest.Test(t, func(t *testing.T) { c.run(newSubject(t, b)) })
			return
		}
		c.run(newSubject(t, b))
	})
}
