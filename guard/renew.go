package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// renewersAtOnce bounds the renewals that are under way at a time, for a Locker that is no Async.
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
	// overdue means that the next renewal no longer waits for the answer. Guard.mu guards it.
	overdue bool
}

// newRenewal begins a renewal of t that is due now. Guard.mu must be held.
func newRenewal(t *storeLease, now time.Duration) *renewal {
	r := &renewal{storeLease: t, claim: t.claim, sent: now}
	r.claim.Fence = max(r.claim.Fence, t.raises.to)
	t.newest, t.renewal = r, renewalAwaited
	t.underway++
	t.overdueAt = now + renewalTimeout(t.claim.TTL, t.longestMargin())
	return r
}

// setOverdue notes that the newest renewal has no answer yet, so that the next one is sent soon:
// the connection may be dead. It returns the report for the hooks. Guard.mu must be held.
func (r *renewal) setOverdue(now time.Duration) (report func()) {
	t := r.storeLease
	h := t.holder
	r.overdue = true
	r.failed(&StoreError{Op: driver.OpRenew, Key: t.claim.Key, Kind: driver.KindTimeout, Err: errOverdue}, now)
	if t.renewal = renewalIdle; t.underway >= maxRenewals {
		t.renewal = renewalsFull
	}
	if h.lost == nil { // else announceLoss ends them
		t.raises.end(r.claim.Fence, t.lastErr)
	}
	sent, used, failures, err := r.sent, t.used(now), t.failures, t.lastErr
	return func() { h.reportRenewal(sent, now-sent, used, failures, err) }
}

// failed notes that there is no answer, and plans the next renewal. Guard.mu must be held.
func (r *renewal) failed(err error, now time.Duration) {
	t := r.storeLease
	t.failures++
	t.lastErr = err
	if t.renewAt != clock.Never {
		t.renewAt = now + t.guard.renewalPause(t.claim.TTL, t.failures)
	}
}

func (g *Guard) renewalPause(ttl time.Duration, failures int) time.Duration {
	return g.jitter.Backoff(min(ttl/16, 100*time.Millisecond), ttl/8, failures)
}

// renew renews the batch, which has one TTL, and notes the answer to each.
func (g *Guard) renew(batch []*renewal) {
	if g.async == nil {
		g.renewEach(batch)
		return
	}
	claims := make([]driver.Claim, len(batch))
	ctx, cancel := g.begin(batch)
	defer cancel()
	for i, r := range batch {
		claims[i] = r.claim
	}
	g.await(ctx, driver.OpRenew, claims, func(i int, a driver.Answer, err error) { batch[i].answered(a.Held, err) })
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
	ctx.Stop = g.stopRenewals
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
		r.answered(held, err)
	}()
	g.calls.Add(1)
	defer g.calls.Add(-1)
	held, err = g.locker.Renew(ctx, r.claim)
}

// answered notes the answer to a renewal. If the lease was handed off meanwhile, the answer is for
// the holder that has it now.
func (r *renewal) answered(held bool, err error) {
	t, g := r.storeLease, r.storeLease.guard
	g.mu.Lock()
	t.underway--
	if r == t.newest || t.renewal == renewalsFull {
		t.renewal = renewalIdle
	}
	if t.state == storeLeaseReleasing || err != nil && r.overdue { // it was reported then
		g.schedule.replan(t)
		g.mu.Unlock()
		return
	}
	now, h := g.clock.Now(), t.holder
	lost, used := t.expire(now), t.used(now)
	if err != nil {
		err = asStoreError(driver.OpRenew, t.claim.Key, err)
	}
	lost = append(lost, r.note(held, err, now, used)...)
	if h.lost == nil { // else announceLoss ends them
		t.raises.end(r.claim.Fence, err)
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

// note changes the storeLease as the answer says: it plans another try, loses the lease, or extends
// the validity. It returns the holders that are lost by that. Guard.mu must be held.
func (r *renewal) note(held bool, err error, now, used time.Duration) (lost []*holder) {
	t := r.storeLease
	switch {
	case err != nil:
		r.failed(err, now)
		return nil
	case !held:
		t.state, t.renewAt, t.lastErr = storeLeaseGone, clock.Never, nil
		return t.lose(LossNotHeld, now)
	}
	t.failures, t.lastErr = 0, nil
	for h := t.holder; h != nil; h = h.next {
		h.renewals++
		h.used = max(h.used, used)
	}
	if fence := r.claim.Fence; fence > t.claim.Fence { // it was raised, so others cannot share t
		t.claim.Fence = fence
		t.holder.fence.Store(fence)
	}
	return r.extend(now)
}

// extend extends the validity, and returns the holders that are lost nevertheless. The answer to an
// older request than the last one that was answered does not extend it. Guard.mu must be held.
func (r *renewal) extend(now time.Duration) (lost []*holder) {
	t := r.storeLease
	if r.sent < t.counted() {
		return nil
	}
	once := t.holder.set.noRenewal // this renewal has only raised the fence
	switch {
	case t.renewAt == clock.Never: // the maximum hold is over
	case t.raises.to > t.claim.Fence:
		t.renewAt = now
	case once:
		t.renewAt = clock.Never
	default:
		t.renewAt = t.guard.renewalAfter(r.sent, t.claim.TTL)
	}
	switch {
	case t.areAll(func(h *holder) bool { return h.lost != nil }):
		// The lease is kept for the functions that still run, but is not valid again.
	case t.suspended(t.guard.clock.Suspended(now)):
		return t.lose(LossSuspended, now)
	case !once:
		t.extendValidity(r.sent, r.anchor)
	}
	return nil
}
