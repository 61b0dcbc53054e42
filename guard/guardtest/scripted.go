package guardtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// ErrUnscripted is what a script returns to have a call answered as if it were not scripted: by
// Inner, or by a grant. Callers do not see it.
var ErrUnscripted = errors.New("guardtest: not scripted")

// A Scripted is a guard.Locker that answers as a test specifies, and records the calls. The zero
// value is ready for use. It grants every claim, with growing fences, and every renewal and
// release finds its lease. Its leases do not exclude one another. It is safe for concurrent use,
// but the fields must not change while it is in use.
//
//	store := &guardtest.Scripted{
//		OnAcquire: func(_ context.Context, n int, _ driver.Claim) (driver.Answer, error) {
//			if n == 1 {
//				return guardtest.Busy(time.Second, "web-2")
//			}
//			return driver.Answer{}, guardtest.ErrUnscripted
//		},
//	}
//
// A replay of an answer needs a record that a middleware has written. To test one, set Inner to a
// memory.Locker, and send the request twice.
//
// It has none of the optional abilities of a Locker, not even those of Inner. So it receives every
// call: a Guard renews each lease in a call of its own.
type Scripted struct {
	// OnAcquire, OnRenew and OnRelease, if set, answer the n-th call of their kind, where n starts
	// at 1. An error from Fail gets the operation and the key of the call. They may block until
	// ctx ends, as Hang does.
	OnAcquire func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error)
	OnRenew   func(ctx context.Context, n int, c driver.Claim) (held bool, err error)
	OnRelease func(ctx context.Context, n int, c driver.Claim, after driver.After) (held bool, err error)
	// Inner answers the calls that are not scripted. Set it to a memory.Locker for leases that
	// exclude one another.
	Inner guard.Locker

	mu    sync.Mutex
	calls []Call
	asked map[driver.Op]int
	fence uint64
	last  map[string]grantedTo // the last grant of each key, without Inner
}

var _ guard.Locker = (*Scripted)(nil)

// grantedTo is a grant that a repeated claim must get again.
type grantedTo struct {
	id    string
	fence uint64
}

// A Call is one call to a Scripted.
type Call struct {
	Op driver.Op
	// N is the number of the call among those with the same Op, counted from 1.
	N     int
	Claim driver.Claim
	After driver.After // of a release
	// Start is when the call began, and Took how long it took.
	Start time.Time
	Took  time.Duration
	// Answered means that the call has returned. The following fields are zero until then.
	Answered bool
	Grant    driver.Answer // of an acquire
	Held     bool          // of a renewal or release
	Err      error
}

// Calls returns the calls so far, in the order in which they came.
func (s *Scripted) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// TryAcquire implements guard.Locker.
func (s *Scripted) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	index, call := s.begin(driver.OpAcquire, c, driver.After{})
	err := ErrUnscripted
	if s.OnAcquire != nil {
		call.Grant, err = s.OnAcquire(ctx, call.N, c)
	}
	if errors.Is(err, ErrUnscripted) {
		call.Grant, err = s.acquireUnscripted(ctx, c)
	}
	return call.Grant, s.end(index, call, err)
}

// Renew implements guard.Locker.
func (s *Scripted) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	index, call := s.begin(driver.OpRenew, c, driver.After{})
	err := ErrUnscripted
	if s.OnRenew != nil {
		call.Held, err = s.OnRenew(ctx, call.N, c)
	}
	if errors.Is(err, ErrUnscripted) {
		call.Held, err = true, nil
		if s.Inner != nil {
			call.Held, err = s.Inner.Renew(ctx, c)
		}
	}
	return call.Held, s.end(index, call, err)
}

// Release implements guard.Locker.
func (s *Scripted) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	index, call := s.begin(driver.OpRelease, c, after)
	err := ErrUnscripted
	if s.OnRelease != nil {
		call.Held, err = s.OnRelease(ctx, call.N, c, after)
	}
	if errors.Is(err, ErrUnscripted) {
		call.Held, err = true, nil
		if s.Inner != nil {
			call.Held, err = s.Inner.Release(ctx, c, after)
		}
	}
	return call.Held, s.end(index, call, err)
}

// acquireUnscripted grants the claim, with the same fence if the claim is repeated.
func (s *Scripted) acquireUnscripted(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if s.Inner != nil {
		return s.Inner.TryAcquire(ctx, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.last[c.Key]
	reserved := 0
	if !ok || g.id != c.ID {
		g, reserved = grantedTo{id: c.ID, fence: s.fence + 1}, max(c.Fences.Reserve, 0)
		s.fence = g.fence + uint64(reserved)
		if s.last == nil {
			s.last = map[string]grantedTo{}
		}
		s.last[c.Key] = g
	}
	return driver.Answer{State: driver.Granted, Fence: g.fence, Reserved: reserved}, nil
}

// begin records a call that has begun, and returns its index in the record.
func (s *Scripted) begin(op driver.Op, c driver.Claim, after driver.After) (index int, call Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = map[driver.Op]int{}
	}
	s.asked[op]++
	call = Call{Op: op, N: s.asked[op], Claim: c, After: after, Start: time.Now()}
	s.calls = append(s.calls, call)
	return len(s.calls) - 1, call
}

// end records how the call ended, and returns err. If err lacks the operation and the key, end
// fills them in.
func (s *Scripted) end(index int, call Call, err error) error {
	var failure *guard.StoreError
	if errors.As(err, &failure) && failure.Op == "" {
		complete := *failure // a copy: the script may return one error for many calls
		complete.Op, complete.Key = call.Op, call.Claim.Key
		err = &complete
	}
	call.Answered, call.Took, call.Err = true, time.Since(call.Start), err
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[index] = call
	return err
}
