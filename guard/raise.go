package guard

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

// A call for several keys (DoAll) gives all of its leases one fence. A renewal raises the fence of
// a lease. The lease uses the fence when the store has answered that it knows it. So the store
// knows each fence that a run can see, however the call ends. If a renewal has no answer, the store
// may know the fence already. The schedule then renews with that fence until there is an answer,
// even if the call has ended.

// raises are the calls that wait until a storeLease has a larger fence. Guard.mu guards them.
type raises struct {
	to      uint64 // the largest fence that was asked for, or 0
	waiting []*raise
}

// A raise is a call that waits until a lease has a fence.
type raise struct {
	fence  uint64
	answer chan error // receives the answer to a renewal with that fence
}

// newRaise has the next renewal raise h's fence, and returns the raise that its answer ends. It
// returns nil if h has that fence already.
func newRaise(h *holder, fence uint64) *raise {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	t := h.storeLease
	if t.claim.Fence >= fence {
		return nil
	}
	r := &raise{fence, make(chan error, 1)}
	if !h.isHeld() {
		r.answer <- nil
		return r
	}
	t.raises.waiting = append(t.raises.waiting, r)
	t.raises.to = max(t.raises.to, fence)
	t.claim.Fences.Reserve = 0 // the reserved may be smaller
	if t.failures == 0 || t.renewAt == clock.Never {
		t.renewAt = h.guard.clock.Now()
	}
	h.guard.schedule.replan(t)
	return r
}

// end ends the raises up to a fence, because a renewal with that fence was answered. Guard.mu must
// be held.
func (rs *raises) end(fence uint64, err error) {
	rs.waiting = slices.DeleteFunc(rs.waiting, func(r *raise) bool {
		if r.fence > fence {
			return false
		}
		r.answer <- err
		return true
	})
}

// abandon ends all raises: the lease is lost, or its release has begun. Guard.mu must be held.
func (rs *raises) abandon() { rs.end(math.MaxUint64, nil) }

// shareFence gives all of the keys one fence, the largest of theirs. If others may hold one of the
// keys meanwhile, one of them may have that fence. Each key then keeps its own. It waits until the
// deadline for a store that does not answer.
func (g *Guard) shareFence(ctx context.Context, all []*holder, deadline time.Duration) error {
	if len(all) > 1 && sharesKey(all) {
		return nil
	}
	fence := uint64(0)
	for _, h := range all {
		fence = max(fence, h.fence.Load())
	}
	all = enclosing(ctx, all)
	errs := make([]error, len(all))
	each(len(all), func(i int) { errs[i] = g.raise(ctx, all[i], fence, deadline) })
	return cmp.Or(errs...)
}

// sharesKey reports whether others may hold one of the keys meanwhile.
func sharesKey(all []*holder) bool {
	return slices.ContainsFunc(all, func(h *holder) bool { return h.set.maxHolders > 1 })
}

// raise returns when the store knows the fence for h. After a renewal without an answer, it waits
// for further ones until the deadline.
func (g *Guard) raise(ctx context.Context, h *holder, fence uint64, deadline time.Duration) error {
	var failed error // the last renewal
	for {
		r := newRaise(h, fence)
		if r == nil {
			return nil
		}
		var err error
		select {
		case err = <-r.answer:
		case <-ctx.Done():
		case <-g.closing.Done():
			err = &ClosedError{Key: h.key}
		}
		switch lost, released := h.ended(); {
		case ctx.Err() != nil:
			return contextEnded(ctx, driver.OpAcquire, h.key)
		case failed != nil && lost != nil && lost.Reason == LossExpired:
			return failed
		case lost != nil || released != nil:
			return h.endedError(ctx, nil, false)
		case err == nil:
			return nil
		case !errors.Is(err, ErrStore), queue.Permanent(err), g.clock.Now() >= deadline:
			return err
		}
		failed = err
	}
}

// enclosing returns the holders, and those of the other keys of each run around the call that has
// one of them: such a run has one fence, too.
func enclosing(ctx context.Context, all []*holder) []*holder {
	all = slices.Clone(all)
	for n := 0; n < len(all); {
		n = len(all)
		for c := leaseOf(ctx); c != nil; c = leaseOf(c.Context) {
			run := append(c.others(), c.holder)
			if sharesKey(run) || !slices.ContainsFunc(run, func(h *holder) bool { return slices.Contains(all, h) }) {
				continue
			}
			for _, h := range run {
				if !slices.Contains(all, h) && !h.isReleased() {
					all = append(all, h)
				}
			}
		}
	}
	return all
}
