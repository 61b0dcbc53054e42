package guard

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errNoAnswer stands for a claim that RenewBatch did not report on.
var errNoAnswer = errors.New("guard: the store's RenewBatch did not report on the claim")

// renewalAfter returns when to renew a lease that was counted from the instant sent: at a third of its TTL
// or a little before. A random part spreads leases that were granted at once; then the instant is put
// on a grid, so that what is due at nearly the same time goes out as one batch.
func (d *dice) renewalAfter(sent, ttl time.Duration) time.Duration {
	third := ttl / 3
	return (sent + third - d.upTo(third/4)).Truncate(ttl / 30)
}

// renewalTimeout bounds one renewal: a lease can be tried for three times and more before it ends.
func renewalTimeout(ttl time.Duration) time.Duration { return min(ttl/4, 3*time.Second) }

// renewalPause is how long to wait after a renewal that had no answer.
func (d *dice) renewalPause(ttl time.Duration, failures int) time.Duration {
	return d.backoff(min(ttl/16, 100*time.Millisecond), ttl/8, failures)
}

// startRenewal renews the batch in the background.
func (g *Guard) startRenewal(batch []*hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inBackground(func() { g.renew(batch) })
}

// renew renews the batch, whose claims have one TTL, and tells each hold what came of it.
func (g *Guard) renew(batch []*hold) {
	ttl := batch[0].claim.TTL
	anchor := g.asleep(atMost)
	sent := g.now()
	ctx, cancel := context.WithTimeout(g.uncalled(), renewalTimeout(ttl))
	defer cancel()

	if g.batch == nil {
		var each sync.WaitGroup
		for _, h := range batch {
			each.Go(func() {
				held, err := g.locker.Renew(ctx, h.claim)
				h.renewed(sent, anchor, held, err)
			})
		}
		each.Wait()
		return
	}
	claims := make([]Claim, len(batch))
	for i, h := range batch {
		claims[i] = h.claim
	}
	reported := make([]sync.Once, len(batch))
	report := func(i int, held bool, err error) {
		reported[i].Do(func() { batch[i].renewed(sent, anchor, held, err) })
	}
	g.batch.RenewBatch(ctx, claims, report)
	for i := range batch {
		report(i, false, errNoAnswer)
	}
}

// renewed takes the answer to a renewal that was sent at the instant sent, when asleep said anchor.
func (h *hold) renewed(sent, anchor time.Duration, held bool, err error) {
	g := h.guard
	g.mu.Lock()
	if heir := h.heir; heir != nil { // the lease was handed on meanwhile: the answer is about that
		h.heir, heir.renewal = nil, nil
		h = heir
	}
	h.renewing = false
	if h.released != nil {
		g.mu.Unlock()
		return
	}
	now := g.now()
	lost := h.expire(now)
	used := now - (h.validUntil() + h.margin - h.claim.TTL)
	if h.lost != nil {
		used = 0
	}
	switch {
	case err != nil:
		h.failures++
		h.lastErr = err
		h.retryRenewal(now)
	case !held:
		h.renewAt = never
		if h.lost == nil {
			h.lastErr = nil
			h.lose(LossNotHeld, 0)
			lost = true
		}
	default:
		h.failures, h.lastErr = 0, nil
		h.renewals++
		h.used = max(h.used, used)
		h.planRenewal(sent)
		switch {
		case h.lost != nil: // kept for the function that still runs, but not believed in again
		case h.suspended(g.slept(now)):
			h.lose(LossSuspended, 0)
			lost = true
		default:
			h.count(sent, anchor)
		}
	}
	g.replan(h)
	g.mu.Unlock()
	if lost {
		h.announceLoss()
	}
	h.reportRenewal(sent, now, used, held, err)
}

// retryRenewal plans another try after one without an answer. The Guard's mu must be held.
func (h *hold) retryRenewal(now time.Duration) {
	if h.renewAt != never {
		h.renewAt = now + h.guard.dice.renewalPause(h.claim.TTL, h.failures)
	}
}

// planRenewal plans the next renewal after one that was sent at the instant sent. The Guard's mu must
// be held.
func (h *hold) planRenewal(sent time.Duration) {
	if h.renewAt != never {
		h.renewAt = h.guard.dice.renewalAfter(sent, h.claim.TTL)
	}
}

// reportRenewal tells the hooks of the answer to a renewal that was sent at the instant sent. used is how much of the TTL had passed by then.
func (h *hold) reportRenewal(sent, now, used time.Duration, held bool, err error) {
	if len(h.set.hooks) == 0 {
		return
	}
	e := h.event()
	e.Start, e.Duration, e.Used = h.guard.epoch.Add(sent), now-sent, used
	if err != nil {
		e.Err = asStoreError(OpRenew, h.claim.Key, err)
	}
	if err == nil && !held {
		e.Err = &LostError{Key: h.key, Fence: h.claim.Fence, Reason: LossNotHeld}
	}
	h.guard.reporter.report(func() { hooks(h.set.hooks).tell(&h.ctx, &e, pickRenew) }, true)
}
