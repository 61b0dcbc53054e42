package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/lazyctx"
)

// errUnreported is the error of a claim on which the backend did not report.
var errUnreported = errors.New("the backend did not report on the claim")

// renewersAtOnce bounds the renewals that are under way at a time, for a Locker that is no
// BatchRenewer.
const renewersAtOnce = 64

// renewalAfter returns when to renew a lease whose validity counts from the instant sent: at a
// third of its TTL or a little before. A random part spreads leases that were granted at once. The
// instant is then rounded down to a grid, so that renewals that are due at nearly the same time go
// out as one batch.
func (g *Guard) renewalAfter(sent, ttl time.Duration) time.Duration {
	third := ttl / 3
	return (sent + third - g.jitter.UpTo(third/4)).Truncate(ttl / 30)
}

// maxRenewals bounds the requests to renew one lease that are under way at a time.
const maxRenewals = 4

// errOverdue stands for the answer to a renewal that has taken long. It may still come.
var errOverdue = errors.New("no answer for a quarter of the TTL; it still counts if it comes")

// renewalTimeout is for how long the Guard waits for the answer to a renewal before it sends the
// next one. A lease can be tried three times or more before it ends. With a margin (WithMargin),
// it ends earlier, so each try takes less time.
func renewalTimeout(ttl, margin time.Duration) time.Duration { return ttl/4 - margin*3/8 }

// A renewal is one request to renew a lease. Its answer counts until the lease has ended, from
// when the request was sent: a store that is slow is not away.
type renewal struct {
	storeLease *storeLease
	claim      driver.Claim
	sent       time.Duration
	anchor     time.Duration // see storeLease.extendValidity
	report     sync.Once
	// overdue means that the Guard waits for the answer no longer. Guard.mu guards it.
	overdue bool
}

// newRenewal begins a renewal that is due now. Guard.mu must be held.
func (t *storeLease) newRenewal(now time.Duration) *renewal {
	t.newest = &renewal{storeLease: t, claim: t.nextClaim(), sent: now}
	t.renewal = renewalAwaited
	t.underway++
	t.overdueAt = now + renewalTimeout(t.claim.TTL, t.longestMargin())
	return t.newest
}

// setOverdue notes that the newest renewal has no answer yet, so that the next one is sent soon:
// the connection may be dead. It returns the report for the hooks. Guard.mu must be held.
func (t *storeLease) setOverdue(now time.Duration) (report func()) {
	h, r := t.holder, t.newest
	t.failures++
	t.lastErr = &StoreError{Op: driver.OpRenew, Key: t.claim.Key, Kind: driver.KindTimeout, Err: errOverdue}
	r.overdue = true
	if t.renewal = renewalIdle; t.underway >= maxRenewals {
		t.renewal = renewalsFull
	}
	if t.renewAt != clock.Never {
		t.renewAt = now + t.guard.renewalPause(t.claim.TTL, t.failures)
	}
	if h.lost == nil { // else announceLoss ends them
		t.endRaises(r.claim.Fence, t.lastErr)
	}
	sent, used, failures, err := r.sent, t.used(now), t.failures, t.lastErr
	return func() { h.reportRenewal(sent, now-sent, used, failures, err) }
}

// used returns how much of the TTL has passed, or 0 if the lease was lost. Guard.mu must be held.
func (t *storeLease) used(now time.Duration) time.Duration {
	if t.holder.lost != nil {
		return 0
	}
	return now - t.counted()
}

// longestMargin returns the longest margin of the calls that have t. Guard.mu must be held.
func (t *storeLease) longestMargin() (longest time.Duration) {
	for h := t.holder; h != nil; h = h.next {
		longest = max(longest, h.set.margin)
	}
	return longest
}

// renewalPause is the pause after a renewal without an answer.
func (g *Guard) renewalPause(ttl time.Duration, failures int) time.Duration {
	return g.jitter.Backoff(min(ttl/16, 100*time.Millisecond), ttl/8, failures)
}

// renew renews the batch, which has one TTL, and notes the answer to each.
func (g *Guard) renew(batch []*renewal) {
	if g.batch == nil {
		g.renewEach(batch)
		return
	}
	claims := make([]driver.Claim, len(batch))
	ctx, cancel := g.begin(batch)
	defer cancel()
	for i, r := range batch {
		claims[i] = r.claim
	}
	err := errAborted // unless RenewBatch returns
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errAborted, p)
		}
		for _, r := range batch {
			r.answer(false, err)
		}
	}()
	g.calls.Add(1)
	defer g.calls.Add(-1)
	g.batch.RenewBatch(ctx, claims, func(i int, held bool, err error) { batch[i].answer(held, err) })
	err = errUnreported
}

// begin notes that the renewals are about to be sent, and returns their context. It ends when no
// answer is of use any more: the leases have ended, and those that are kept although they are lost
// would be tried again. It also ends when Close has nothing left to renew.
func (g *Guard) begin(batch []*renewal) (context.Context, func()) {
	anchor, sent := g.clock.Suspension(clock.AtMost), g.clock.Now()
	until := sent + renewalTimeout(batch[0].claim.TTL, 0)
	g.mu.Lock()
	for _, r := range batch {
		r.sent, r.anchor = sent, anchor
		until = max(until, r.storeLease.validUntil())
	}
	g.mu.Unlock()
	ctx := lazyctx.NewCall(g.detached(), g.clock.Time(until), 0)
	ctx.Stop = g.unheld
	return ctx, func() { ctx.End(nil) }
}

// renewEach renews each claim in a call of its own, a bounded number at a time. A call that takes
// long does not count any more: a slow key must not delay the renewal of others.
func (g *Guard) renewEach(batch []*renewal) {
	var all sync.WaitGroup
	for _, r := range batch {
		g.renewers <- struct{}{}
		done := sync.OnceFunc(func() { <-g.renewers })
		slow := time.AfterFunc(renewalTimeout(r.claim.TTL, 0)/8, done)
		all.Go(func() {
			defer done()
			defer slow.Stop()
			ctx, cancel := g.begin([]*renewal{r})
			defer cancel()
			g.renewOne(ctx, r)
		})
	}
	all.Wait()
}

func (g *Guard) renewOne(ctx context.Context, r *renewal) {
	held, err := false, errAborted // unless Renew returns
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errAborted, p)
		}
		r.answer(held, err)
	}()
	g.calls.Add(1)
	defer g.calls.Add(-1)
	held, err = g.locker.Renew(ctx, r.claim)
}

// answer notes the first answer to the renewal.
func (r *renewal) answer(held bool, err error) { r.report.Do(func() { r.answered(held, err) }) }

// answered notes the answer to a renewal. If the lease was handed off meanwhile, the answer is for
// the holder that has it now.
func (r *renewal) answered(held bool, err error) {
	t := r.storeLease
	g := t.guard
	g.mu.Lock()
	h := t.holder
	t.underway--
	if r == t.newest || t.renewal == renewalsFull {
		t.renewal = renewalIdle
	}
	if t.state == storeLeaseReleasing {
		g.mu.Unlock()
		return
	}
	if err != nil && r.overdue { // it was reported then
		g.schedule.replan(t)
		g.mu.Unlock()
		return
	}
	now := g.clock.Now()
	lost := t.expire(now)
	used := t.used(now)
	switch {
	case err != nil:
		t.failures++
		t.lastErr = err
		if t.renewAt != clock.Never {
			t.renewAt = now + g.renewalPause(t.claim.TTL, t.failures)
		}
	case !held:
		t.state = storeLeaseGone
		t.renewAt = clock.Never
		t.lastErr = nil
		lost = append(lost, t.lose(LossNotHeld, now)...)
	default:
		lost = append(lost, t.extend(r, now, used)...)
	}
	if err != nil {
		err = asStoreError(driver.OpRenew, t.claim.Key, err)
	}
	if h.lost == nil { // else announceLoss ends them
		t.endRaises(r.claim.Fence, err)
	}
	g.schedule.replan(t)
	failures, fence := t.failures, h.fence.Load()
	g.unlock()
	for _, h := range lost {
		h.announceLoss()
	}
	if err == nil && !held {
		err = &LostError{Key: h.key, Fence: fence, Reason: LossNotHeld, ran: true}
	}
	h.reportRenewal(r.sent, now-r.sent, used, failures, err)
}

// extend extends the validity after a renewal, and returns the holders that are lost nevertheless.
// The answer to an older request than the last one that was answered does not extend it. Guard.mu
// must be held.
func (t *storeLease) extend(r *renewal, now, used time.Duration) (lost []*holder) {
	g := t.guard
	t.failures, t.lastErr = 0, nil
	for h := t.holder; h != nil; h = h.next {
		h.renewals++
		h.used = max(h.used, used)
	}
	t.raised(r.claim.Fence)
	if r.sent < t.counted() {
		return nil
	}
	t.renewAgain(r.sent, now)
	switch {
	case t.areAll(func(h *holder) bool { return h.lost != nil }):
		// The lease is kept for the functions that still run, but is not valid again.
	case t.suspended(g.clock.Suspended(now)):
		return t.lose(LossSuspended, now)
	case !t.holder.set.noRenewal: // else it has only raised the fence
		t.extendValidity(r.sent, r.anchor)
	}
	return nil
}

// renewAgain plans the renewal after one that was sent at an instant, and answered now. Guard.mu
// must be held.
func (t *storeLease) renewAgain(sent, now time.Duration) {
	switch {
	case t.renewAt == clock.Never: // the maximum hold is over
	case t.raiseTo > t.claim.Fence:
		t.renewAt = now
	case t.holder.set.noRenewal: // the renewal has raised the fence
		t.renewAt = clock.Never
	default:
		t.renewAt = t.guard.renewalAfter(sent, t.claim.TTL)
	}
}
