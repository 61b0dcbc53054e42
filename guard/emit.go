package guard

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func storeAnswer(a driver.Answer) StoreAnswer {
	label := a.Label
	if a.State == driver.Done {
		label, _, _ = splitMarker(label)
	}
	return StoreAnswer{a.State, a.Left, label}
}

// event returns what all events of the acquisition have.
func (a *acquisition) event() Event {
	return Event{
		Name: a.set.name, Key: a.key, Owner: a.claim.Owner, TTL: a.claim.TTL, Start: a.guard.clock.Time(a.start),
		Auxiliary: a.set.auxiliary, Candidate: a.set.candidate,
	}
}

// reportStart calls the hooks for the start of the acquisition, and sets its context.
func (a *acquisition) reportStart() {
	e := a.event()
	a.ctx = hooks(a.set.hooks).start(a.caller, func(ctx context.Context, h *Hook) context.Context {
		if h.AcquireStart == nil {
			return ctx
		}
		return h.AcquireStart(ctx, e)
	})
}

// reportWait calls the hooks for the begin of the wait.
func (a *acquisition) reportWait() {
	e := WaitEvent{a.event(), a.last}
	hooks(a.set.hooks).call(func(h *Hook) { send(a.ctx, h.Wait, e) })
}

// report calls the hooks for the end of the acquisition, once.
func (a *acquisition) report(err error) {
	hs := hooks(a.set.hooks)
	if len(hs) == 0 || a.phase != phaseOpen {
		return
	}
	a.phase = phaseReported
	now := a.guard.clock.Now()
	e := AcquireEvent{
		Event: a.event(), StoreAnswer: a.last, Duration: now - a.start, Attempts: a.requests,
		Waits: a.hasWaited(), Waited: a.waited(now), Err: err,
	}
	if h := a.got; h != nil {
		e.Fence, e.Previous, e.Grant = h.fence.Load(), a.previous.Label, a.grantReason(now)
	}
	hs.call(func(h *Hook) { send(a.ctx, h.AcquireEnd, e) })
	if errors.Is(err, ErrBusy) && !a.set.probe || errors.Is(err, ErrDone) {
		skip := SkipEvent{e.Event, e.StoreAnswer, e.Waited, err}
		hs.call(func(h *Hook) { send(a.ctx, h.Skip, skip) })
	}
}

// reportSkip calls the hooks for a call that gives up because of a busy key.
func (s *multiAcquire) reportSkip(k *keyState) {
	hs := hooks(s.set.hooks)
	if len(hs) == 0 || s.set.probe || !errors.Is(k.err, ErrBusy) && !errors.Is(k.err, ErrDone) {
		return
	}
	e := SkipEvent{Event: Event{Name: s.set.name, Key: k.key, TTL: s.set.ttl, Auxiliary: s.set.auxiliary}, Err: k.err}
	e.State = driver.Busy
	var busy *BusyError
	if errors.As(k.err, &busy) {
		e.Left, e.Label = busy.Left, busy.Label
	}
	hs.call(func(h *Hook) { send(s.ctx, h.Skip, e) })
}

// reportCall calls the hooks for a request and its answer.
func (a *acquisition) reportCall(sent, took time.Duration, grant driver.Answer, err error) {
	e := CallEvent{
		Event: a.event(), StoreAnswer: storeAnswer(grant),
		Op: driver.OpAcquire, Duration: took, Err: err,
	}
	e.Start = a.guard.clock.Time(sent)
	hooks(a.set.hooks).call(func(h *Hook) { send(a.ctx, h.Call, e) })
}

// event returns what all events of the holder have. start is when the operation began.
func (h *holder) event(start time.Duration) LeaseEvent {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return LeaseEvent{
		Event: Event{
			Name: h.set.name, Key: h.key, Owner: h.owner, TTL: h.set.ttl, Start: h.guard.clock.Time(start),
			Auxiliary: h.set.auxiliary, Candidate: h.set.candidate,
		},
		Fence: h.fence.Load(), Renewals: h.renewals, MaxUsed: h.used, Origin: h.origin,
	}
}

// reportLoss has the hooks called for the loss of h.
func (h *holder) reportLoss() {
	if len(h.set.hooks) == 0 {
		return
	}
	e := LossEvent{h.event(h.granted), h.guard.clock.Now() - h.granted, h.lost}
	h.guard.reporter.report(&e.Event, true, func() {
		e.Err = e.Err.explained(context.Background())
		hooks(h.set.hooks).call(func(k *Hook) { send(&h.ctx, k.Loss, e) })
	})
}

// reportRenewal has the hooks called for a renewal. used is how much of the TTL had passed.
func (h *holder) reportRenewal(sent, took, used time.Duration, failures int, err error) {
	if len(h.set.hooks) == 0 {
		return
	}
	e := RenewEvent{h.event(sent), took, used, failures, err}
	h.guard.reporter.report(&e.Event, false, func() {
		if lost, ok := e.Err.(*LostError); ok { //nolint:errorlint // it is not wrapped
			e.Err = lost.explained(context.Background())
		}
		hooks(h.set.hooks).call(func(k *Hook) { send(&h.ctx, k.Renew, e) })
	})
}

// event returns the event of the begin of the run.
func (r *run) event() RunEvent {
	e := RunEvent{r.holder.event(r.start), r.joined}
	e.Auxiliary = false
	e.Candidate = e.Candidate && !r.joined
	return e
}

// reportStart calls the hooks for the start of the run, and sets its context.
func (r *run) reportStart() {
	e := r.event()
	r.ctx = r.hooks.start(r.ctx, func(ctx context.Context, h *Hook) context.Context {
		if h.RunStart == nil {
			return ctx
		}
		return h.RunStart(ctx, e)
	})
}

// report calls the hooks for the end of the run.
func (r *run) report(err error) {
	e := RunEndEvent{RunEvent: r.event(), Duration: r.took, Aborted: !r.returned, LeaseEnded: r.ended, Err: err}
	r.hooks.call(func(h *Hook) { send(r.ctx, h.RunEnd, e) })
}

// releaseCall returns the event of a request to release h.
func (h *holder) releaseCall(sent, took time.Duration, err error) CallEvent {
	return CallEvent{Event: h.event(sent).Event, Op: driver.OpRelease, Duration: took, Err: err}
}

// report calls the hooks for a release.
func (r *release) report() {
	if r.state == releaseNone || r.neverAccepted || len(r.holder.set.hooks) == 0 {
		return
	}
	h, hs := r.holder, hooks(r.holder.set.hooks)
	for _, c := range r.calls[:r.tried] {
		e := h.releaseCall(c.sent, c.took, c.err)
		hs.call(func(k *Hook) { send(&h.ctx, k.Call, e) })
	}
	e := ReleaseEvent{
		LeaseEvent: h.event(r.at), Duration: r.took, Held: r.at - h.granted, Attempts: r.tried,
		HandedOff: r.state == releasePassedOn, Err: r.err,
	}
	hs.call(func(k *Hook) { send(&h.ctx, k.Release, e) })
}

// reportRepeat has the hooks called for a release that was sent again, see sendMarking.
func (h *holder) reportRepeat(sent, took time.Duration, err error) {
	if len(h.set.hooks) > 0 {
		h.guard.reporter.reportCall(&h.ctx, h.set.hooks, h.releaseCall(sent, took, err))
	}
}

// An orphanReport is what hooks receive of an orphan.
type orphanReport struct {
	hooks hooks
	ctx   context.Context //nolint:containedctx // the context of the event
	event Event
	op    driver.Op
}

func newOrphanReport(ctx context.Context, set *settings, key string, op driver.Op) orphanReport {
	if len(set.hooks) == 0 {
		return orphanReport{}
	}
	return orphanReport{set.hooks, context.WithoutCancel(ctx), Event{Name: set.name, Key: key, Auxiliary: set.auxiliary}, op}
}

// of returns what all events of the orphan have. start is when the operation began.
func (r *orphanReport) of(g *Guard, c driver.Claim, start time.Duration) Event {
	e := r.event
	e.Owner, e.TTL, e.Start = c.Owner, c.TTL, g.clock.Time(start)
	return e
}

// reportOrphan has the hooks called for the begin, or the end, of the work on an orphan.
func (g *Guard) reportOrphan(o *orphan, begins bool) {
	if len(o.report.hooks) == 0 {
		return
	}
	e := OrphanEvent{Event: o.report.of(g, o.claim, o.since), Op: o.report.op, Pending: begins, Attempts: o.tries}
	if !begins {
		e.Duration, e.Err = g.clock.Now()-o.since, o.err
	}
	hs, ctx := o.report.hooks, o.report.ctx
	g.reporter.report(&e.Event, true, func() { hs.call(func(h *Hook) { send(ctx, h.Orphan, e) }) })
}

// reportCleanUp has the hooks called for a clean-up.
func (g *Guard) reportCleanUp(o *orphan, sent, took time.Duration) {
	if len(o.report.hooks) > 0 {
		g.reporter.reportCall(o.report.ctx, o.report.hooks,
			CallEvent{Event: o.report.of(g, o.claim, sent), Op: driver.OpCleanUp, Duration: took, Err: o.err})
	}
}

// reportBounded calls the hooks of New for a call that bounded has made.
func (g *Guard) reportBounded(ctx context.Context, op driver.Op, key string, sent time.Duration, err error) {
	e := CallEvent{Event: Event{Name: g.set.name, Key: key, Start: g.clock.Time(sent)}, Op: op, Duration: g.clock.Now() - sent, Err: err}
	hooks(g.set.hooks).call(func(h *Hook) { send(ctx, h.Call, e) })
}
