package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
)

// errUnreported is the error of a claim on which RenewBatch did not report.
var errUnreported = errors.New("the backend's RenewBatch did not report on the claim")

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

// renewalTimeout bounds one renewal, so that a lease can be tried three times or more before it
// ends. With a margin (WithMargin), it ends earlier, so each try takes less time.
func renewalTimeout(ttl, margin time.Duration) time.Duration {
	return min(ttl/4-margin*3/8, 3*time.Second)
}

// longestMargin returns the longest margin of the calls that have t. Guard.mu must be held.
func (t *tenure) longestMargin() (longest time.Duration) {
	for h := t.hold; h != nil; h = h.next {
		longest = max(longest, h.set.margin)
	}
	return longest
}

// renewalPause is the pause after a renewal without an answer.
func (g *Guard) renewalPause(ttl time.Duration, failures int) time.Duration {
	return g.jitter.Backoff(min(ttl/16, 100*time.Millisecond), ttl/8, failures)
}

// renew renews the batch, which has one TTL, and notes the answer to each.
func (g *Guard) renew(batch []*tenure) {
	claims := make([]Claim, len(batch))
	margin := time.Duration(0)
	g.mu.Lock()
	for i, t := range batch {
		claims[i] = t.claim
		margin = max(margin, t.longestMargin())
	}
	g.mu.Unlock()
	timeout := renewalTimeout(claims[0].TTL, margin)
	if g.batch == nil {
		g.renewEach(batch, claims, timeout)
		return
	}
	anchor := g.clock.Suspension(clock.AtMost)
	sent := g.clock.Now()
	ctx, cancel := context.WithTimeout(g.detached(), timeout)
	defer cancel()
	reported := make([]sync.Once, len(batch))
	report := func(i int, held bool, err error) {
		reported[i].Do(func() { batch[i].renewed(sent, anchor, held, err) })
	}
	err := errAborted // unless RenewBatch returns
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errAborted, p)
		}
		for i := range batch {
			report(i, false, err)
		}
	}()
	g.calls.Add(1)
	defer g.calls.Add(-1)
	g.batch.RenewBatch(ctx, claims, report)
	err = errUnreported
}

// renewEach renews each claim in a call of its own, a bounded number at a time. A call that takes
// long does not count any more: a slow key must not delay the renewal of others.
func (g *Guard) renewEach(batch []*tenure, claims []Claim, timeout time.Duration) {
	var all sync.WaitGroup
	for i, t := range batch {
		g.renewers <- struct{}{}
		done := sync.OnceFunc(func() { <-g.renewers })
		slow := time.AfterFunc(timeout/8, done)
		all.Go(func() {
			defer done()
			defer slow.Stop()
			ctx, cancel := context.WithTimeout(g.detached(), timeout)
			defer cancel()
			g.renewOne(ctx, t, claims[i])
		})
	}
	all.Wait()
}

func (g *Guard) renewOne(ctx context.Context, t *tenure, c Claim) {
	anchor := g.clock.Suspension(clock.AtMost)
	sent := g.clock.Now()
	held, err := false, errAborted // unless Renew returns
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errAborted, p)
		}
		t.renewed(sent, anchor, held, err)
	}()
	g.calls.Add(1)
	defer g.calls.Add(-1)
	held, err = g.locker.Renew(ctx, c)
}

// renewed notes the answer to a renewal that was sent at an instant, when anchor was read. If the
// lease was handed off meanwhile, the answer is for the hold that has it now.
func (t *tenure) renewed(sent, anchor time.Duration, held bool, err error) {
	g := t.guard
	g.mu.Lock()
	t.renewing = false
	h := t.hold
	if t.index < 0 { // its release has begun
		g.mu.Unlock()
		return
	}
	now := g.clock.Now()
	lost := t.expire(now)
	used := now - (t.validUntil() + t.margin - t.claim.TTL)
	if h.lost != nil {
		used = 0
	}
	switch {
	case err != nil:
		t.failures++
		t.lastErr = err
		if t.renewAt != clock.Never {
			t.renewAt = now + g.renewalPause(t.claim.TTL, t.failures)
		}
	case !held:
		t.gone = true
		t.renewAt = clock.Never
		t.lastErr = nil
		lost = append(lost, t.lose(LossNotHeld, now)...)
	default:
		t.failures, t.lastErr = 0, nil
		for h := t.hold; h != nil; h = h.next {
			h.renewals++
			h.used = max(h.used, used)
		}
		if t.renewAt != clock.Never {
			t.renewAt = g.renewalAfter(sent, t.claim.TTL)
		}
		switch {
		case t.isLost(): // kept for the functions that still run, but not valid again
		case t.suspended(g.clock.Suspended(now)):
			lost = append(lost, t.lose(LossSuspended, now)...)
		default:
			t.count(sent, anchor)
		}
	}
	g.schedule.replan(t)
	failures, fence := t.failures, h.fence.Load()
	g.unlock()
	for _, h := range lost {
		h.announceLoss()
	}
	if err != nil {
		err = asStoreError(driver.OpRenew, t.claim.Key, err)
	} else if !held {
		err = &LostError{Key: h.key, Fence: fence, Reason: LossNotHeld, ran: true}
	}
	h.reportRenewal(sent, now-sent, used, failures, err)
}
