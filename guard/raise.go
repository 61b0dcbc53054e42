package guard

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

// The fence of a lease is raised by a renewal of its schedule. The lease uses the fence when the
// store has answered that it knows it. So the store knows each fence that a run can see, however
// the call for several keys ends. If a renewal has no answer, the store may know the fence
// already. The schedule then renews with that fence until there is an answer, even if the call has
// ended.

// A raise is a call that waits until a lease has a fence.
type raise struct {
	fence  uint64
	answer chan error // to a renewal with that fence; one answer fits in
}

// raise has the next renewal raise h's fence, and returns the raise that its answer ends. It
// returns nil if h has that fence already.
func (h *holder) raise(fence uint64) *raise {
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
	t.raises = append(t.raises, r)
	t.raiseTo = max(t.raiseTo, fence)
	t.claim.Reserve = 0 // the reserved fences may be smaller
	if t.failures == 0 || t.renewAt == clock.Never {
		t.renewAt = h.guard.clock.Now()
	}
	h.guard.schedule.replan(t)
	return r
}

// nextClaim returns the claim with which to renew t. Guard.mu must be held.
func (t *storeLease) nextClaim() driver.Claim {
	c := t.claim
	c.Fence = max(c.Fence, t.raiseTo)
	return c
}

// raised notes that the store knows the fence. Guard.mu must be held.
func (t *storeLease) raised(fence uint64) {
	if fence > t.claim.Fence { // and others cannot share t
		t.claim.Fence = fence
		t.holder.fence.Store(fence)
	}
}

// endRaises ends the raises up to a fence, which a renewal with that fence has answered. Guard.mu
// must be held.
func (t *storeLease) endRaises(fence uint64, err error) {
	t.raises = slices.DeleteFunc(t.raises, func(r *raise) bool {
		if r.fence > fence {
			return false
		}
		r.answer <- err
		return true
	})
}

// abandonRaises ends all raises: t is lost, or its release has begun. Guard.mu must be held.
func (t *storeLease) abandonRaises() { t.endRaises(math.MaxUint64, nil) }

// shareFence gives all of the keys one fence, the largest of theirs. If others may hold one of the
// keys meanwhile, one of them may have that fence. Each key then keeps its own.
func (s *multiAcquire) shareFence(all []*holder) error {
	if len(all) > 1 && sharesKey(all) {
		return nil
	}
	fence := uint64(0)
	for _, h := range all {
		fence = max(fence, h.fence.Load())
	}
	all = enclosing(s.ctx, all)
	errs := make([]error, len(all))
	each(len(all), func(i int) { errs[i] = s.raise(all[i], fence) })
	return cmp.Or(errs...)
}

// sharesKey reports whether others may hold one of the keys meanwhile.
func sharesKey(all []*holder) bool {
	return slices.ContainsFunc(all, func(h *holder) bool { return h.set.among > 1 })
}

// raise returns when the store knows the fence for h. It waits for further renewals after one
// without an answer, as long as the call waits.
func (s *multiAcquire) raise(h *holder, fence uint64) error {
	var failed error // the last renewal
	for {
		r := h.raise(fence)
		if r == nil {
			return nil
		}
		var err error
		select {
		case err = <-r.answer:
		case <-s.ctx.Done():
		case <-s.guard.closing:
			err = &ClosedError{Key: h.key}
		}
		switch lost, released := h.ended(); {
		case s.ctx.Err() != nil:
			return contextEnded(s.ctx, driver.OpAcquire, h.key)
		case failed != nil && lost != nil && lost.Reason == LossExpired:
			return failed
		case lost != nil || released != nil:
			return h.endedError(s.ctx, nil, false)
		case err == nil:
			return nil
		case !errors.Is(err, ErrStore), queue.Permanent(err), s.guard.clock.Now() >= s.deadline:
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
