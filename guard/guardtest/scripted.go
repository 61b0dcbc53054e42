package guardtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// ErrUnscripted, returned by a script, leaves the call to what answers where nothing is scripted. It
// does not reach the caller.
var ErrUnscripted = errors.New("guardtest: not scripted")

// A Scripted is a guard.Locker that answers as a test wants it to, and keeps a record of what it was
// asked. The zero value is ready for use: it grants every claim, with fences that grow, and every
// renewal and release finds its lease; it excludes nobody. It is safe for concurrent use, but the
// fields must not change while it is in use.
//
//	store := &guardtest.Scripted{
//		OnAcquire: func(_ context.Context, n int, _ guard.Claim) (guard.Grant, error) {
//			if n == 1 {
//				return guardtest.Busy(time.Second, "web-2")
//			}
//			return guard.Grant{}, guardtest.ErrUnscripted
//		},
//	}
//
// It has none of the optional abilities of a Locker, those of Inner neither, so that no call passes it by:
// a Guard renews each lease in a call of its own.
type Scripted struct {
	// OnAcquire, OnRenew and OnRelease answer, where they are set, the n-th call of their kind,
	// counted from 1. An error of Fail becomes one about the call at hand. They may block until ctx
	// ends, as Hang does.
	OnAcquire func(ctx context.Context, n int, c guard.Claim) (guard.Grant, error)
	OnRenew   func(ctx context.Context, n int, c guard.Claim) (held bool, err error)
	OnRelease func(ctx context.Context, n int, c guard.Claim, after guard.After) (held bool, err error)
	// Inner answers what is not scripted. Give a store in memory for leases that exclude one another.
	Inner guard.Locker

	mu    sync.Mutex
	calls []Call
	asked map[guard.Op]int
	fence uint64
	last  map[string]grantedTo // what was granted last, by key, without Inner
}

var _ guard.Locker = (*Scripted)(nil)

// grantedTo is a grant that a repeated claim has to get again.
type grantedTo struct {
	id    string
	fence uint64
}

// A Call is one call to a Scripted.
type Call struct {
	Op guard.Op
	// N is which call of its Op it is, from 1.
	N     int
	Claim guard.Claim
	After guard.After // of a release
	// Start is when the call came, Took how long it took.
	Start time.Time
	Took  time.Duration
	// Answered says that the call has returned. Until then what follows is zero.
	Answered bool
	Grant    guard.Grant // of an acquire
	Held     bool        // of a renewal or release
	Err      error
}

// Calls returns the calls so far, in the order in which they came.
func (s *Scripted) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// TryAcquire implements guard.Locker.
func (s *Scripted) TryAcquire(ctx context.Context, c guard.Claim) (guard.Grant, error) {
	place, call := s.begin(guard.OpAcquire, c, guard.After{})
	err := ErrUnscripted
	if s.OnAcquire != nil {
		call.Grant, err = s.OnAcquire(ctx, call.N, c)
	}
	if errors.Is(err, ErrUnscripted) {
		call.Grant, err = s.acquireUnscripted(ctx, c)
	}
	return call.Grant, s.end(place, call, err)
}

// Renew implements guard.Locker.
func (s *Scripted) Renew(ctx context.Context, c guard.Claim) (bool, error) {
	place, call := s.begin(guard.OpRenew, c, guard.After{})
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
	return call.Held, s.end(place, call, err)
}

// Release implements guard.Locker.
func (s *Scripted) Release(ctx context.Context, c guard.Claim, after guard.After) (bool, error) {
	place, call := s.begin(guard.OpRelease, c, after)
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
	return call.Held, s.end(place, call, err)
}

// acquireUnscripted grants, and a repeated claim with the same fence.
func (s *Scripted) acquireUnscripted(ctx context.Context, c guard.Claim) (guard.Grant, error) {
	if s.Inner != nil {
		return s.Inner.TryAcquire(ctx, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.last[c.Key]
	if !ok || g.id != c.ID {
		g = grantedTo{id: c.ID, fence: s.fence + 1}
		s.fence = g.fence + uint64(max(c.Reserve, 0))
		if s.last == nil {
			s.last = map[string]grantedTo{}
		}
		s.last[c.Key] = g
	}
	return guard.Grant{State: guard.Granted, Fence: g.fence}, nil
}

// begin records a call that has come, and returns its place in the record.
func (s *Scripted) begin(op guard.Op, c guard.Claim, after guard.After) (place int, call Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = map[guard.Op]int{}
	}
	s.asked[op]++
	call = Call{Op: op, N: s.asked[op], Claim: c, After: after, Start: time.Now()}
	s.calls = append(s.calls, call)
	return len(s.calls) - 1, call
}

// end records how the call has ended, and returns err, with the call filled in if that is missing.
func (s *Scripted) end(place int, call Call, err error) error {
	var failure *guard.StoreError
	if errors.As(err, &failure) && failure.Op == "" {
		about := *failure // the script may return one error for many calls
		about.Op, about.Key = call.Op, call.Claim.Key
		err = &about
	}
	call.Answered, call.Took, call.Err = true, time.Since(call.Start), err
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[place] = call
	return err
}
