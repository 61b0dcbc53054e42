package guard

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/lazyctx"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

// errTooLate is a grant whose validity had passed when it arrived.
var errTooLate = errors.New("the answer came when the lease was about to end, or had ended")

// requestTimeout bounds one request for a lease, in proportion to the lease: a store whose answers
// take less than a third of the TTL is slow, and one whose answers take longer is away. A grant
// that comes when the lease is about to end is of no use.
func requestTimeout(ttl time.Duration) time.Duration {
	return min(ttl-marginOf(ttl), max(ttl/3, 5*time.Second))
}

// ask asks the store once. It returns the hold if the claim was granted and is of use, or an error
// if the call must not go on.
func (a *acquisition) ask(step queue.Step) (*hold, error) {
	g := a.guard
	a.identify()
	a.previous, a.unprompted = step.Previous, step.Unprompted
	a.claim.Reserve = 0
	if step.Reserve || a.set.joins() {
		a.claim.Reserve = mostHandOffs
	}
	sent := g.clock.Now()
	anchor := g.clock.Anchor(sent)
	timeout := min(requestTimeout(a.claim.TTL), a.giveUp-sent)
	call := &a.firstCall
	if a.requests++; a.requests > 1 {
		call = new(lazyctx.Context) // the Locker may still use the first
	}
	call.InitCall(a.ctx, g.clock.Time(sent+timeout), 0)
	call.EndWith(g.gaveUp)
	defer call.End(nil)
	a.asking = true
	a.claim.Repeated = a.late || a.queued
	grant, err := a.set.first.tryAcquire(call, g, a.claim)
	a.note(grant, err)
	answered := g.clock.Now()
	if err != nil {
		err = asStoreError(driver.OpAcquire, a.claim.Key, err)
	}
	a.reportCall(sent, answered-sent, grant, err)
	a.set.deferral.note(err)
	if err == nil && grant.State == Granted {
		t := g.newTenure(a.claim, grant, sent, anchor, answered)
		t.late = a.late
		var h *hold
		if h, err = a.use(t, sent, answered-sent); h != nil {
			a.last.set(grant)
			return h, nil
		}
	}
	if why := a.interrupted(); why != nil && (err != nil || a.caller.Err() != nil) {
		return nil, why
	}
	a.answer(queue.Answer{Grant: grant, Err: err, Took: answered - sent})
	return nil, nil
}

// note notes what the store does for the claim from now on, according to its answer. It comes
// before anything that can end the call: cleanUp undoes what the call does not use.
func (a *acquisition) note(grant Grant, err error) {
	a.asking = false
	if err != nil {
		a.late = true
		return
	}
	a.unused = a.unused || grant.State == Granted
	a.queued = grant.State == Busy && (a.claim.Queue == driver.Queued || grant.Wanted)
}

// use puts a tenure that was just granted into the schedule, unless it is of no use any more.
func (a *acquisition) use(t *tenure, sent, took time.Duration) (*hold, error) {
	g := a.guard
	h := g.newHold(a, t, sent)
	t.renewAt = clock.Never
	if !a.set.noRenewal {
		t.renewAt = g.renewalAfter(sent, t.claim.TTL)
	}
	valid := h.valid()
	g.mu.Lock()
	defer g.unlock()
	if !valid || g.closed || a.caller.Err() != nil {
		h.life.End(errTooLate)
		return nil, &StoreError{Op: driver.OpAcquire, Key: a.claim.Key, Kind: driver.KindTimeout, Err: errTooLate}
	}
	a.got, a.unused = h, false
	g.schedule.add(t)
	g.warn()
	g.queues.Granted(sent+took, g.queueID(a.claim.Key, a.set), a.local, h, took, a.set.among > 1)
	t.admit(a.set, sent+took)
	return h, nil
}

// answer passes the store's answer on to the waiter, and changes the ID of a claim that is over.
func (a *acquisition) answer(answer queue.Answer) {
	g := a.guard
	var store *StoreError
	switch {
	case answer.Err != nil:
		if errors.As(answer.Err, &store) && store.Revoked {
			a.renewClaim()
		}
	default:
		a.last.set(answer.Grant)
		if !a.queued { // a claim has its position in the queue by its ID
			a.renewClaim()
		}
	}
	g.mu.Lock()
	defer g.unlock()
	a.waiter.Answer(g.clock.Now(), answer)
}

// identify gives the claim an ID if it has none yet: a call that is handed a lease needs none.
func (a *acquisition) identify() {
	if a.claim.ID == "" {
		a.claim.ID = rand.Text()
	}
	if a.claim.Owner == "" {
		a.claim.Owner = a.claim.ID
	}
}

// renewClaim gives the claim another ID: whatever the store still revokes of the old one cannot
// affect the new one.
func (a *acquisition) renewClaim() {
	a.cleanUp()
	if a.claim.Owner == a.claim.ID && a.set.owner == "" {
		a.claim.Owner = ""
	}
	a.claim.ID = ""
	if fair, ok := a.waiter.(*queue.Fair); ok {
		a.guard.mu.Lock()
		defer a.guard.unlock()
		fair.Resubscribe()
	}
}

// cleanUp leaves the claim to the cleaner if the store may have it, or has queued it.
func (a *acquisition) cleanUp() {
	g := a.guard
	switch {
	case a.late, a.unused:
		g.orphaned(orphan{claim: a.claim, late: a.late, report: a.orphanReport()}, a.set.deferral)
	case a.queued:
		g.cleaner.add(orphan{claim: a.claim})
	}
	a.late, a.unused, a.queued = false, false, false
}
