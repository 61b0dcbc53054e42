package guard

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// An acquisition is one call's way to a lease: as many requests as it takes. acquire.go has its
// begin and its end, ask.go one request and its answer, and wait.go the wait for a busy key.
type acquisition struct {
	guard   *Guard
	key     string // as the caller gave it
	set     *settings
	caller  context.Context
	ctx     context.Context // the caller's, with the values of the hooks
	start   time.Duration
	retries queue.Retries
	askAt   time.Duration // when to ask again, if the call does not wait

	waiter queue.Waiter               // decides when to ask; nil if the call does not wait
	local  *queue.Local[*acquisition] // the waiter, if it is in the queue of this process; or nil
	// offered is the lease that was handed off to the call last. Guard.mu guards it.
	offered *holder

	claim     driver.Claim
	stored    storedClaim
	late      bool          // a request had no answer: the store may still receive it
	requests  int           // to the Locker
	unsent    int           // of these, those that it has not sent to the store
	sent      time.Duration // when the last request was sent
	anchor    time.Duration // see storeLease.extendValidity
	firstCall lazyctx.Context
	last      StoreAnswer
	waitFrom  time.Duration // when the key was first found busy, or clock.Never
	previous  queue.Previous
	got       *holder

	unprompted bool // only the time has prompted the last request
	handedOff  bool // the lease came from another call
	phase      phase
}

// storedClaim is what the store has of the claim, according to its last answer.
type storedClaim uint8

const (
	storedNothing storedClaim = iota
	storedUnknown             // a request is under way
	storedQueued              // the claim has its place in a queue, or keeps others away
	storedGranted             // the claim was granted, and the call does not use it (yet)
)

// A phase is how far an acquisition has come.
type phase uint8

const (
	phaseOpen     phase = iota
	phaseReported       // the hooks were called for the end
	phaseReturned
)

// acquire takes a lease on the key. The store knows the key as stored. acquire returns a holder in
// the schedule, or the error of a call whose function did not run. The caller must release the
// holder.
func (g *Guard) acquire(ctx context.Context, key, stored string, set *settings) (*holder, error) {
	a, err := g.newAcquisition(ctx, key, stored, set)
	if err != nil {
		return nil, err
	}
	defer a.exit()
	if len(a.set.hooks) > 0 {
		a.begin()
	}
	return a.end(a.get())
}

// newAcquisition returns an acquisition that the Guard counts until exit, or the error of a call
// that must not begin.
func (g *Guard) newAcquisition(ctx context.Context, key, stored string, set *settings) (*acquisition, error) {
	if ctx.Err() != nil {
		return nil, contextEnded(ctx, driver.OpAcquire, key)
	}
	now := g.clock.Now()
	l := queue.Limits{Deadline: now, GiveUp: now + requestTimeout(set.ttl), Announce: len(set.hooks) > 0}
	if set.wait > 0 {
		l.Deadline = now + min(set.wait, clock.Never-now)
		l.GiveUp = l.Deadline + min(answerGrace, clock.Never-l.Deadline)
	}
	a := &acquisition{guard: g, key: key, set: set, caller: ctx, ctx: ctx, start: now, waitFrom: clock.Never}
	a.retries, a.previous.Ends = queue.NewRetries(g.jitter, l), clock.Never
	a.claim = driver.Claim{Key: stored, Owner: set.owner, TTL: set.ttl, Label: set.label, MaxHolders: set.maxHolders, Queue: queueMode(set)}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed() {
		return nil, &ClosedError{Key: key}
	}
	g.active.add(1)
	return a, nil
}

func (a *acquisition) begin() {
	a.identify()
	a.reportStart()
	a.claim.Label = hooks(a.set.hooks).label(a.ctx, a.set.label)
}

// get gets a lease, or the error with which the call gives up. A call that does not wait for a busy
// key asks until the store has answered.
func (a *acquisition) get() (h *holder, err error) {
	if a.requests == 0 && (a.set.wait > 0 || a.set.joins()) {
		return a.wait()
	}
	for h == nil && err == nil {
		if a.requests > 0 && !a.guard.sleep(a.askAt, nil, a.caller.Done(), a.guard.closing.Done()) {
			return nil, a.interrupted()
		}
		h, err = a.ask(false)
	}
	return h, err
}

// interrupted returns why the call must not go on, or nil.
func (a *acquisition) interrupted() error {
	switch {
	case hasEnded(a.caller):
		return contextEnded(a.caller, driver.OpAcquire, a.key)
	case a.guard.isClosed():
		return &ClosedError{Key: a.key}
	}
	return nil
}

// refused returns the error of a call that gives up: err if it is not nil, or because the key is
// busy or done.
func (a *acquisition) refused(grant driver.Answer, err error) error {
	switch {
	case errors.Is(err, queue.ErrUnanswered):
		return &StoreError{Op: driver.OpAcquire, Key: a.claim.Key, Kind: driver.KindTimeout, Err: err}
	case err != nil:
		return err
	}
	a.last = storeAnswer(grant)
	if grant.State == driver.Done {
		return doneError(a.key, grant)
	}
	return &BusyError{Key: a.key, Left: grant.Left, Label: grant.Label, Foreign: grant.Reason == driver.HeldByProgram, Waited: a.waited(a.guard.clock.Now())}
}

func (a *acquisition) end(h *holder, err error) (*holder, error) {
	a.got = h
	if a.waiter != nil {
		a.leave()
	}
	if len(a.set.hooks) > 0 {
		a.report(err)
	}
	a.phase = phaseReturned
	if h != nil && h.over.Load() { // while a hook ran
		_ = h.lease.Release(a.caller)
		return nil, h.endedError(a.caller, nil, false)
	}
	return h, err
}

// exit ends the acquisition, in whatever way the call ends: it returns, or the Locker or a hook
// has panicked or ended the goroutine.
func (a *acquisition) exit() {
	if a.phase == phaseReturned && a.got != nil {
		return
	}
	var r release
	defer r.report()
	defer a.report(errAborted)
	defer func() {
		if a.got != nil { // a hook has ended the goroutine
			r.begin(a.got, releaseOptions{})
			r.send(a.caller)
			return
		}
		a.cleanUp()
		a.guard.active.add(-1)
	}()
	a.late = a.late || a.stored == storedUnknown
	a.leave()
}

// event returns what all events of the acquisition have. start is when the operation began.
func (a *acquisition) event(start time.Duration) Event {
	return a.guard.event(a.set, a.key, a.claim.Owner, start)
}

// reportStart calls the hooks for the start of the acquisition, and sets its context.
func (a *acquisition) reportStart() {
	a.ctx = start(a.caller, a.set.hooks, a.event(a.start), func(h *Hook) func(context.Context, Event) context.Context { return h.AcquireStart })
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
		Event: a.event(a.start), StoreAnswer: a.last, Duration: now - a.start, Attempts: a.requests - a.unsent,
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

func storeAnswer(a driver.Answer) StoreAnswer {
	label := a.Label
	if a.State == driver.Done {
		label, _, _ = splitMarker(label)
	}
	return StoreAnswer{a.State, a.Left, label}
}
