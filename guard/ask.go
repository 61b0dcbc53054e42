package guard

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// errTooLate is a grant whose validity had passed when it arrived.
var errTooLate = errors.New("the answer came when the lease was about to end, or had ended")

// requestTimeout bounds one request for a lease, in proportion to the lease: a store whose answers
// take less than a third of the TTL is slow, and one whose answers take longer is away. A grant
// that comes when the lease is about to end is of no use.
func requestTimeout(ttl time.Duration) time.Duration {
	return min(ttl-marginOf(ttl), max(ttl/3, 5*time.Second))
}

// ask asks the store once. It returns the holder if the claim was granted and is of use, or an
// error if the call must not go on. reserve asks for fences for other calls, too.
func (a *acquisition) ask(reserve bool) (*holder, error) {
	g := a.guard
	a.prepare(reserve)
	call := &a.firstCall
	if a.requests > 1 {
		call = new(lazyctx.Context) // the Locker may still use the first
	}
	timeout := min(requestTimeout(a.claim.TTL), a.retries.GiveUp-a.sent)
	call.InitCall(a.ctx, g.clock.Time(a.sent+timeout), 0)
	call.Stop = g.stopCalls
	defer call.End(nil)
	return a.answered(g.tryAcquire(call, a.claim))
}

func (a *acquisition) prepare(reserve bool) {
	g := a.guard
	a.identify()
	a.claim.Fences.Reserve = 0
	if reserve {
		a.claim.Fences.Reserve = maxHandOffs
	}
	a.sent = g.clock.Now()
	a.anchor = g.clock.Anchor(a.sent)
	a.requests++
	a.claim.Repeated = a.late || a.stored == storedQueued
	a.stored = storedUnknown
}

// answered handles the answer to a request. It returns as ask does. It notes first what the store
// does for the claim from now on, before anything that can end the call: cleanUp undoes what the
// call does not use.
func (a *acquisition) answered(grant driver.Answer, err error) (*holder, error) {
	switch {
	case err != nil:
		a.stored, a.late = storedNothing, true
	case grant.State == driver.Granted:
		a.stored = storedGranted
	case grant.State == driver.Busy && (a.claim.Queue == driver.Queued || grant.Reason == driver.HeldForClaim):
		a.stored = storedQueued
	default:
		a.stored = storedNothing
	}
	if grant.State == driver.Busy { // a marker that is not done: some nodes have lost it
		grant.Label, _, _ = splitMarker(grant.Label)
	}
	took := a.guard.clock.Now() - a.sent
	if err != nil {
		err = asStoreError(driver.OpAcquire, a.claim.Key, err)
	}
	switch {
	case grant.Reason == driver.Unsent:
		a.unsent++
	case len(a.set.hooks) > 0:
		a.reportCall(took, grant, err)
	}
	if a.set.deferral != nil {
		a.set.deferral.note(err)
	}
	if err == nil && grant.State == driver.Granted {
		var h *holder
		if h, err = a.use(grant, took); h != nil {
			return h, nil
		}
	}
	if why := a.interrupted(); why != nil && (err != nil || a.caller.Err() != nil) {
		return nil, why
	}
	return nil, a.refuse(queue.Answer{Grant: grant, Err: err, Took: took})
}

// use puts a lease that was just granted into the schedule, unless it is of no use any more.
func (a *acquisition) use(grant driver.Answer, took time.Duration) (*holder, error) {
	g, now := a.guard, a.sent+took
	t := g.newStoreLease(a.claim, grant, a.sent, a.anchor, now)
	t.late = a.late
	h := g.newHolder(a, t, a.sent)
	t.renewAt = clock.Never
	if !a.set.noRenewal {
		t.renewAt = g.renewalAfter(a.sent, t.claim.TTL)
	}
	valid := h.valid()
	g.mu.Lock()
	defer g.unlock()
	if !valid || g.isClosed() || a.caller.Err() != nil {
		h.life.End(errTooLate)
		return nil, &StoreError{Op: driver.OpAcquire, Key: a.claim.Key, Kind: driver.KindTimeout, Err: errTooLate}
	}
	a.last = StoreAnswer{State: driver.Granted}
	a.got, a.stored = h, storedNothing
	g.schedule.add(t)
	if g.warning.store != nil && now >= g.warning.next {
		g.warn(now)
	}
	if g.queues.Len() > 0 {
		g.queues.Granted(now, g.queueID(a.claim.Key, a.set), a.local, h, took, a.set.maxHolders > 1)
	}
	if a.set.joins() {
		t.admit(a.set, now)
	}
	return h, nil
}

// refuse handles an answer by which the call has no lease. It changes the ID of a claim that is
// over. It returns an error if the call gives up.
func (a *acquisition) refuse(answer queue.Answer) error {
	g := a.guard
	var store *StoreError
	switch {
	case answer.Err != nil:
		if errors.As(answer.Err, &store) && store.Revoked {
			a.renewClaim()
		}
	default:
		a.last = storeAnswer(answer.Grant)
		if a.stored != storedQueued { // a claim has its position in the queue by its ID
			a.renewClaim()
		}
	}
	now := g.clock.Now()
	if a.waiter == nil {
		pause, again := a.retries.After(now, answer)
		if !again {
			return a.refused(answer.Grant, answer.Err)
		}
		a.askAt = now + pause
		return nil
	}
	g.mu.Lock()
	defer g.unlock()
	a.waiter.Answer(now, answer)
	return nil
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
	if a.waiter != nil {
		a.guard.mu.Lock()
		defer a.guard.unlock()
		a.waiter.Renamed()
	}
}

// cleanUp leaves the claim to the cleaner if the store may have it, or has queued it.
func (a *acquisition) cleanUp() {
	g := a.guard
	switch {
	case a.late, a.stored == storedGranted:
		o := g.newOrphan(a.ctx, a.set, a.key, driver.OpAcquire, a.claim)
		o.late = a.late
		g.orphaned(o, a.set.deferral)
	case a.stored == storedQueued:
		g.cleaner.add(orphan{claim: a.claim})
	}
	a.late, a.stored = false, storedNothing
}

func (a *acquisition) reportCall(took time.Duration, grant driver.Answer, err error) {
	e := CallEvent{Event: a.event(a.sent), StoreAnswer: storeAnswer(grant), Op: driver.OpAcquire, Duration: took, Err: err}
	hooks(a.set.hooks).call(func(h *Hook) { send(a.ctx, h.Call, e) })
}
