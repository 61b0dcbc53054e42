package guard

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Event is what a Hook receives. Fields that do not belong to the event are zero.
type Event struct {
	// Name is the kind of work (WithName). Key is the key as the caller gave it: it may hold
	// personal data.
	Name, Key string
	// Owner is the owner of the claim: that of WithOwner, or the claim's random ID.
	Owner string
	// Start is when the operation began, and Duration how long it took.
	Start    time.Time
	Duration time.Duration
	// Fence is the fence of the lease.
	Fence uint64
	// TTL is the TTL of the lease. Used, of a renewal, is how much of it had passed when the
	// answer came. Of the end of a run and of a release, it is the most that a renewal of the
	// lease has used. Held, of a release, is how long the lease was held.
	TTL, Used, Held time.Duration
	// Op is the call to the store that was made, or that left an orphan. Node is the node of a
	// quorum that was called; the backend reports that, not the Guard: see redlock.WithHook.
	Op   driver.Op
	Node string
	// Attempts is the number of requests to the store. It is 0 for the release of a lease that the
	// store did not know any more. Waited is how long the call waited for a busy key. Waits means
	// that it began to wait.
	Attempts int
	Waited   time.Duration
	Waits    bool
	// State, Left and Label are the store's last answer to the claim, as in driver.Answer. Of a
	// call, they are its answer.
	State driver.State
	Left  time.Duration
	Label string
	// Previous, if granted, is the label of the last holder that the call waited for. Takeover
	// means that the lease of that holder had ended, as far as is known: it has probably died.
	Previous string
	Takeover bool
	// MissedWakeUp, if granted, means that the call found out by itself that the key had been
	// released, although the backend notifies waiters. It is never set for a call that has waited
	// for less than a quarter of a second, which may not have subscribed yet.
	MissedWakeUp bool
	// Renewals is how often the lease has been renewed. Failures is how many renewals in a row
	// have failed.
	Renewals, Failures int
	// Origin, of an event of a lease, is the context that AcquireStart returned for it.
	Origin context.Context //nolint:containedctx // it is what the event reports
	// Pending means that the work on an Orphan begins.
	Pending bool
	// Dropped is how many events were dropped since the last one, because hooks were too slow.
	Dropped int
	// Auxiliary means that the lease is an adapter's own, beside the lease of the run.
	Auxiliary bool
	// Candidate means that the lease is that of a Candidate: its run is a term, and its acquire a
	// campaign.
	Candidate bool
	// HandedOff means that the lease went from one call of the Guard to the next, without the
	// store. In a Release, this call handed the lease off. In an AcquireEnd, this call received
	// it.
	HandedOff bool
	// Aborted means that the function panicked or ended its goroutine.
	Aborted bool
	// Joined means that the run took place under a lease that its context already held.
	Joined bool
	// LeaseEnded, of the end of a run, means that a lease of the run was lost or revoked before
	// the function returned. Err says which and why, see LostError and ClosedError.
	LeaseEnded bool
	// Err is how the operation ended. It is nil for success.
	Err error
}

// event returns the event of an acquisition at the instant now.
func (a *acquisition) event(now time.Duration, err error) Event {
	return Event{
		Name:      a.set.name,
		Key:       a.key,
		Owner:     a.claim.Owner,
		Start:     a.guard.clock.Time(a.start),
		Duration:  now - a.start,
		TTL:       a.claim.TTL,
		Attempts:  a.requests,
		Waited:    a.waited(now),
		Waits:     a.hasWaited(),
		State:     a.last.State,
		Left:      a.last.Left,
		Label:     a.last.Label,
		HandedOff: a.handedOff,
		Auxiliary: a.set.auxiliary,
		Candidate: a.set.candidate,
		Err:       err,
	}
}

// report calls the hooks for the end of the acquisition, once.
func (a *acquisition) report(err error) {
	hs := hooks(a.set.hooks)
	if len(hs) == 0 || a.phase != phaseOpen {
		return
	}
	a.phase = phaseReported
	now := a.guard.clock.Now()
	e := a.event(now, err)
	if h := a.got; h != nil {
		e.Fence = h.fence.Load()
		e.Previous, e.Takeover = a.previous.Label, now >= a.previous.Ends
		e.MissedWakeUp = a.missedWakeUp(now)
	}
	hs.call(a.ctx, &e, pickAcquireEnd)
	if errors.Is(err, ErrBusy) && !a.set.probe || errors.Is(err, ErrDone) {
		hs.call(a.ctx, &e, pickSkip)
	}
}

// reportCall calls the hooks for a request and its answer.
func (a *acquisition) reportCall(sent, took time.Duration, grant driver.Answer, err error) {
	hooks(a.set.hooks).call(a.ctx, &Event{
		Name: a.set.name, Key: a.key, Owner: a.claim.Owner, Op: driver.OpAcquire, TTL: a.claim.TTL,
		Start: a.guard.clock.Time(sent), Duration: took, Auxiliary: a.set.auxiliary, Candidate: a.set.candidate,
		State: grant.State, Left: grant.Left, Label: labelOf(grant), Err: err,
	}, pickCall)
}

// event returns an event of a holder. Start and Duration are left to the caller.
func (h *holder) event() Event {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return Event{
		Name:      h.set.name,
		Key:       h.key,
		Owner:     h.owner,
		Fence:     h.fence.Load(),
		TTL:       h.set.ttl,
		Used:      h.used,
		Renewals:  h.renewals,
		Failures:  h.storeLease.failures,
		State:     driver.Granted,
		Origin:    h.origin,
		Auxiliary: h.set.auxiliary,
		Candidate: h.set.candidate,
	}
}

// reportLoss has the hooks called for the loss of h.
func (h *holder) reportLoss() {
	if len(h.set.hooks) == 0 {
		return
	}
	e := h.event()
	e.Start, e.Duration, e.Err = h.guard.clock.Time(h.granted), h.guard.clock.Now()-h.granted, h.lost
	h.guard.reporter.report(pending{h.set.hooks, &h.ctx, e, pickLoss}, true)
}

// reportRenewal has the hooks called for a renewal. used is how much of the TTL had passed.
func (h *holder) reportRenewal(sent, took, used time.Duration, failures int, err error) {
	if len(h.set.hooks) == 0 {
		return
	}
	e := h.event()
	e.Start, e.Duration, e.Used = h.guard.clock.Time(sent), took, used
	e.Failures, e.Err = failures, err
	h.guard.reporter.report(pending{h.set.hooks, &h.ctx, e, pickRenew}, false)
}

// event returns an event of the run.
func (r *run) event(err error) Event {
	e := r.holder.event()
	e.Start, e.Duration = r.holder.guard.clock.Time(r.start), r.took
	e.Joined, e.Auxiliary = r.joined, false
	e.Candidate = e.Candidate && !r.joined
	e.Err = err
	return e
}

// report calls the hooks for the end of the run.
func (r *run) report(err error) {
	e := r.event(err)
	e.Aborted, e.LeaseEnded = !r.returned, r.ended
	r.hooks.call(r.ctx, &e, pickRunEnd)
}

// report calls the hooks for a release.
func (r *release) report() {
	if r.state == releaseNone || r.neverAccepted || len(r.holder.set.hooks) == 0 {
		return
	}
	h, hs := r.holder, hooks(r.holder.set.hooks)
	e := h.event()
	for _, c := range r.calls[:r.tried] {
		e.Op, e.Start, e.Duration, e.Err = driver.OpRelease, h.guard.clock.Time(c.sent), c.took, c.err
		hs.call(&h.ctx, &e, pickCall)
	}
	e.Op = ""
	e.Start, e.Duration, e.Err = h.guard.clock.Time(r.at), r.took, r.err
	e.HandedOff = r.state == releasePassedOn
	e.Attempts, e.Held = r.tried, r.at-h.granted
	hs.call(&h.ctx, &e, pickRelease)
}

// reportRepeat has the hooks called for a release that was sent again, see sendMarking.
func (h *holder) reportRepeat(sent, took time.Duration, err error) {
	if len(h.set.hooks) == 0 {
		return
	}
	e := h.event()
	e.Op, e.Start, e.Duration, e.Err = driver.OpRelease, h.guard.clock.Time(sent), took, err
	h.guard.reporter.report(pending{h.set.hooks, &h.ctx, e, pickCall}, false)
}

// An orphanReport is what hooks receive of an orphan.
type orphanReport struct {
	hooks hooks
	ctx   context.Context //nolint:containedctx // that of the event
	event Event
}

func (a *acquisition) orphanReport() orphanReport {
	return newOrphanReport(a.ctx, a.set, a.key, driver.OpAcquire)
}

func (h *holder) orphanReport(op driver.Op) orphanReport {
	return newOrphanReport(&h.ctx, h.set, h.key, op)
}

func newOrphanReport(ctx context.Context, set *settings, key string, op driver.Op) orphanReport {
	if len(set.hooks) == 0 {
		return orphanReport{}
	}
	return orphanReport{
		hooks: set.hooks, ctx: context.WithoutCancel(ctx),
		event: Event{Name: set.name, Key: key, Op: op, Auxiliary: set.auxiliary},
	}
}

// reportOrphan has the hooks called for the begin, or the end, of the work on an orphan.
func (g *Guard) reportOrphan(o *orphan, begins bool) {
	if len(o.report.hooks) == 0 {
		return
	}
	e := o.report.event
	e.Owner, e.TTL, e.Pending, e.Attempts = o.claim.Owner, o.claim.TTL, begins, o.tries
	e.Start = g.clock.Time(o.since)
	if !begins {
		e.Duration, e.Err = g.clock.Now()-o.since, o.err
	}
	g.reporter.report(pending{o.report.hooks, o.report.ctx, e, pickOrphan}, true)
}

// reportCleanUp has the hooks called for a clean-up.
func (g *Guard) reportCleanUp(o *orphan, sent, took time.Duration) {
	if len(o.report.hooks) == 0 {
		return
	}
	e := o.report.event
	e.Op, e.Owner, e.TTL = driver.OpCleanUp, o.claim.Owner, o.claim.TTL
	e.Start, e.Duration, e.Err = g.clock.Time(sent), took, o.err
	g.reporter.report(pending{o.report.hooks, o.report.ctx, e, pickCall}, false)
}

// reportBounded calls the hooks of New for a call that bounded has made.
func (g *Guard) reportBounded(ctx context.Context, op driver.Op, key string, sent time.Duration, err error) {
	if len(g.set.hooks) == 0 {
		return
	}
	hooks(g.set.hooks).call(ctx, &Event{
		Name: g.set.name, Key: key, Op: op, Start: g.clock.Time(sent), Duration: g.clock.Now() - sent, Err: err,
	}, pickCall)
}
