package guard

import (
	"errors"
	"fmt"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// MaxSeats is the largest limit (WithLimit) whose holders have a seat each.
const MaxSeats = driver.MaxSeats

// WithShared lets calls hold the key together with all others that are made WithShared, as the
// readers of a read-write lock. Calls without it hold the key alone: they wait for the shared
// calls, and the shared calls wait for them.
//
// A call without WithShared that waits (WithWait) keeps later shared calls from the key, so that
// readers cannot keep a writer out forever. If it ends, or its process dies, they go on: after
// 0.6 TTL at the latest.
//
// The fence of a lease that is alone is larger than those of all shared leases before it, and
// smaller than those of all later ones. So a resource that remembers the largest fence of a writer
// can refuse a reader if a writer has come since. The fences of readers do not order them: a later
// reader can have the smaller one.
//
// Shared calls of one Guard with the same TTL that come within 20 ms, or a tenth of the TTL if
// that is shorter, share one lease in the store. Each call has a fence of its own. The lease is
// released after the last of them. A call WithFair, WithMinHold, WithoutRenewal or WithOwner has a
// lease of its own.
//
// Do inside of Do joins the lease that its context holds. If that lease is shared and the inner
// call is not, the call would wait for itself. So it returns an *UpgradeError at once.
//
// New, or the call, returns a *SettingError if the backend cannot share keys, and with WithOnce.
// Defaults to off: a call holds its key alone.
func WithShared() Option {
	return func(s *settings) {
		delete(s.given, "WithLimit")
		s.note("WithShared", true)
		s.maxHolders = driver.Unlimited
	}
}

// WithLimit lets up to n calls hold the key at a time, in all processes: at most five calls to a
// partner's API, or two tasks for each customer. Calls may name different limits. A call is
// granted if the number of holders is below its own limit and below those of the holders. So a
// deploy that changes n is safe. No counter is kept that could be wrong after a crash: the holders
// are counted, and each has a lease. Shared calls of one Guard that have one lease count as one,
// and so do the calls of one owner (WithOwner) if the backend keeps owners.
//
// Each lease has a fence, but several hold the key at a time, so a resource that remembers the
// largest fence would refuse those that are entitled to it. A later holder can even have the
// smaller fence: a lease that is handed off inside of a process goes on with the fences that were
// reserved for it. If n is at most MaxSeats, Lease.Seat says which of n seats the lease has,
// alone. The fences of a seat grow from one holder to the next. So a resource that remembers one
// for each seat can refuse a holder that has lost its lease. backend/redlock and
// backend/both refuse limits.
//
// New, or the call, returns a *SettingError if the backend cannot do so, and with WithOnce. 0 and
// 1 are off: a call holds its key alone. At most 1,000,000. Defaults to 0.
func WithLimit(n int) Option {
	return func(s *settings) {
		delete(s.given, "WithShared")
		s.note("WithLimit", n > 1)
		if n < 0 || n > maxLimit {
			s.refuse("WithLimit", n, fmt.Sprintf("must be from 0 to %d", maxLimit))
			return
		}
		s.maxHolders = n
	}
}

const maxLimit = 1_000_000

// ErrUpgrade means that the context of the call holds the key together with others, and that the
// call asked for it alone, or with fewer. See UpgradeError.
var ErrUpgrade = errors.New("key is held together with others")

// An UpgradeError is ErrUpgrade with the details. Waiting would never end: the lease of the
// context is among those that the call would have to wait for. Ask for the key alone before, or
// release the shared lease.
type UpgradeError struct{ Key string }

func (e *UpgradeError) Error() string {
	return fmt.Sprintf("guard: %q is held by the context together with others (WithShared or WithLimit): "+
		"a call for fewer holders would wait for itself", e.Key)
}

// Is reports whether target is ErrUpgrade.
func (e *UpgradeError) Is(target error) bool { return target == ErrUpgrade }

// Ran returns false: the function did not run.
func (e *UpgradeError) Ran() bool { return false }
