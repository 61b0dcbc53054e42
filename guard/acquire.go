package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// errTooLate is a grant whose validity had passed when it came.
var errTooLate = errors.New("the answer came when the lease was about to end, or had ended")

// attemptTimeout bounds one request for a lease: an answer that comes later is of no use.
func attemptTimeout(ttl time.Duration) time.Duration {
	return min(ttl-marginOf(ttl), 5*time.Second)
}

// acquireTries is how often a store that does not answer is asked by a call that does not wait.
const acquireTries = 3

// contestTries is how often a key that nobody holds, as several claims met, is asked for again by a call that
// does not wait.
const contestTries = 10

// An attempt is one call's way to a lease: as many requests of one claim as it takes.
type attempt struct {
	guard *Guard
	key   string
	set   *settings
	claim Claim
	ctx   context.Context // with what the hooks put in

	start     time.Duration
	deadline  time.Duration // when it has waited for as long as it may
	giveUp    time.Duration // when the store has to have answered
	asked     int
	failed    int           // requests in a row without an answer
	contested int           // answers that nobody holds the key
	took      time.Duration // the last request
	unknown   bool
	last      Grant
	waitFrom  time.Duration // when the key was first found busy, or never
	previous  string        // the label of the last holder that was found
	overAt    time.Duration // when its time is over, as far as is known, or never
	handed    bool          // the lease was handed over by another call
	looks     bool          // it asks by the clock alone: nobody has told it that the key may be free
	turn      turn
	spot
}

// acquire takes a lease on the key, which the store knows as stored, or returns why not. It returns a
// hold that is in the schedule, for which the caller must call giveBack.
func (g *Guard) acquire(ctx context.Context, key, stored string, set *settings) (*hold, error) {
	if ctx.Err() != nil {
		return nil, contextEnded(ctx, OpAcquire, key)
	}
	if !g.enter() {
		return nil, &ClosedError{Key: key}
	}
	a := &attempt{guard: g, key: key, ctx: ctx, start: g.now(), waitFrom: never, overAt: never}
	a.claim = Claim{Key: stored, Owner: set.owner, TTL: set.ttl, Label: set.label, Line: lineOf(set)}
	a.deadline = a.start + min(set.wait, never-a.start)
	a.giveUp = max(a.start+attemptTimeout(set.ttl), a.deadline)
	a.set = set.on()
	if len(a.set.hooks) > 0 {
		a.identify()
		e := a.event(a.start, nil)
		a.ctx = hooks(a.set.hooks).start(ctx, &e, pickAcquireStart)
		a.claim.Label = hooks(a.set.hooks).label(a.ctx, set.label)
	}
	h, err := a.loop(ctx)
	a.leaveTurn()
	if h == nil {
		a.leaveToCleaner()
		if a.prepared != nil {
			a.prepared.life.end(err)
		}
		g.leave()
	}
	a.report(h, err)
	return h, err
}

// loop asks, each time that it is its turn, until the claim is granted or has to be given up. ctx is the caller's.
func (a *attempt) loop(ctx context.Context) (*hold, error) {
	for {
		h, err := a.await(ctx)
		if h != nil || err != nil {
			return h, err
		}
		h, failure := a.ask(ctx)
		if h != nil {
			return h, nil
		}
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
			err = contextEnded(ctx, OpAcquire, a.key)
		case failure != nil:
			pause, err = a.afterFailure(failure)
		default:
			pause, err = a.afterAnswer()
		}
		a.heard(ctx, failure, err, pause)
		if err != nil {
			return nil, err
		}
		switch {
		case a.queued() && failure == nil:
			err = a.awaitTurn(ctx)
		case !a.inLine:
			err = a.pause(ctx, pause)
		}
		if err != nil {
			return nil, err
		}
	}
}

// ask asks the store once. It returns a hold if the claim was granted and is of use.
func (a *attempt) ask(ctx context.Context) (*hold, error) {
	g := a.guard
	a.identify()
	anchor := g.anchor(g.now())
	sent := g.now()
	bound := attemptTimeout(a.claim.TTL)
	if a.failed > 0 {
		bound = min(bound, a.giveUp-sent)
	}
	call := g.newCall(a.ctx, sent, bound, 0)
	grant, err := g.locker.TryAcquire(call, a.claim)
	call.end()
	a.asked++
	answered := g.now()
	a.took = answered - sent
	if err != nil {
		err = asStoreError(OpAcquire, a.claim.Key, err)
	}
	a.tellOfCall(sent, err)
	if err != nil {
		a.failed++
		a.unknown = true
		return nil, err
	}
	a.failed = 0
	a.last = grant
	a.turn.placed = a.queued() && grant.State == Busy
	if grant.State != Granted {
		return nil, nil
	}
	h := a.prepared
	if h == nil {
		h = g.newHold(ctx, a)
	}
	h.grant(a, grant, sent, answered, anchor)
	if err := a.take(ctx, h); err != nil {
		h.life.end(err)
		a.unknown = true // it is ours, and has to be given back
		if a.inLine {
			a.prepared = g.newHold(ctx, a)
		}
		return nil, err
	}
	a.prepared = nil
	return h, nil
}

// take puts h, which was granted, into the schedule, unless it is of no use any more.
func (a *attempt) take(ctx context.Context, h *hold) error {
	g := a.guard
	if ctx.Err() != nil {
		return contextEnded(ctx, OpAcquire, a.key)
	}
	if !h.valid() {
		return &StoreError{Op: OpAcquire, Key: a.claim.Key, Kind: KindTimeout, Err: errTooLate}
	}
	g.mu.Lock()
	defer g.unlockLines()
	if g.closed {
		return &ClosedError{Key: a.key}
	}
	g.add(h)
	g.seat(a, h)
	return nil
}

// afterFailure returns how long to pause after err, or the error with which to give up.
func (a *attempt) afterFailure(err error) (time.Duration, error) {
	var store *StoreError
	if errors.As(err, &store) && store.Over {
		a.renewClaim()
	}
	pause := a.guard.dice.retryPause(a.failed)
	then := a.guard.now() + pause
	again := then < a.deadline || then < a.giveUp && a.patient()
	if errors.Is(err, ErrClosed) || permanent(err) || !again {
		return 0, err
	}
	return pause, nil
}

// afterAnswer returns the error with which to give up, as the key is done, or as it is busy and the time to wait is up. Else it returns
// how long to pause, or 0 where the line says that.
func (a *attempt) afterAnswer() (time.Duration, error) {
	g := a.guard
	if a.last.State == Done {
		return 0, a.done()
	}
	if !a.queued() { // whose claim has a place by its ID
		a.renewClaim()
	}
	now := g.now()
	if !a.last.Called { // who was called does not hold the key
		a.previous, a.overAt = a.last.Label, never
		if a.last.Left >= 0 {
			a.overAt = now + a.last.Left
		}
	}
	if a.last.Contested && a.contested < contestTries && now < a.giveUp {
		a.contested++
		return g.dice.contestPause(a.contested, a.took), nil
	}
	if now >= a.deadline {
		return 0, &BusyError{Key: a.key, Left: a.last.Left, Label: a.last.Label, Waited: a.waited(now)}
	}
	return 0, nil
}

// done returns what the store has said of a key that is done, as an error.
func (a *attempt) done() error {
	return &DoneError{Key: a.key, Left: a.last.Left, Record: a.last.Record, Label: a.last.Label}
}

// identify gives the claim an ID if it has none yet: one who is handed a lease needs none.
func (a *attempt) identify() {
	if a.claim.ID == "" {
		a.claim.ID = rand.Text()
	}
	if a.claim.Owner == "" {
		a.claim.Owner = a.claim.ID
	}
}

// renewClaim gives the claim another ID when the old one is over: what a store of several nodes still has to undo of
// that cannot meet the new one then.
func (a *attempt) renewClaim() {
	a.leaveToCleaner()
	a.leaveTurn()
	a.unknown, a.turn.placed = false, false
	a.claim.ID = rand.Text()
}

// leaveToCleaner has the claim cleaned up if it is not certain that the store does not have it, or if it has a place in line.
func (a *attempt) leaveToCleaner() {
	g := a.guard
	l := leftover{claim: a.claim, until: g.now() + a.claim.TTL}
	switch {
	case a.unknown:
		l.told = orphanOf(a.ctx, a.set, a.key, OpAcquire)
	case a.turn.placed:
		l.after = leaveNothing
	default:
		return
	}
	g.cleaner.add(l)
}

// pause sleeps for d, or returns why to give up.
func (a *attempt) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextEnded(ctx, OpAcquire, a.key)
	case <-a.guard.closing:
		return &ClosedError{Key: a.key}
	}
}

func (a *attempt) waited(now time.Duration) time.Duration {
	if a.waitFrom == never {
		return 0
	}
	return now - a.waitFrom
}

// report tells the hooks how the attempt ended.
func (a *attempt) report(h *hold, err error) {
	if len(a.set.hooks) == 0 {
		return
	}
	now := a.guard.now()
	e := a.event(now, err)
	if h != nil {
		e.Fence = h.claim.Fence
		e.Previous, e.Takeover = a.previous, now >= a.overAt
		e.MissedWakeUp = a.looks && !a.handed && !e.Takeover && e.Waited > longestPoll
	}
	hooks(a.set.hooks).tell(a.ctx, &e, pickAcquireEnd)
	if errors.Is(err, ErrBusy) && !a.set.probe || errors.Is(err, ErrDone) {
		hooks(a.set.hooks).tell(a.ctx, &e, pickSkip)
	}
}

// event returns an Event about a at the instant now.
func (a *attempt) event(now time.Duration, err error) Event {
	return Event{
		Name:     a.set.name,
		Key:      a.key,
		Owner:    a.claim.Owner,
		Start:    a.guard.epoch.Add(a.start),
		Duration: now - a.start,
		TTL:      a.claim.TTL,
		Attempts: a.asked,
		Waited:   a.waited(now),
		Waits:    a.waitFrom != never,
		State:    a.last.State,
		Left:     a.last.Left,
		Label:    a.last.Label,
		HandedOn: a.handed,
		Aside:    a.set.aside,
		Err:      err,
	}
}

// tellOfCall tells the hooks of a call to the store that was sent at the instant sent and ended with err.
func (a *attempt) tellOfCall(sent time.Duration, err error) {
	if len(a.set.hooks) == 0 {
		return
	}
	hooks(a.set.hooks).tell(a.ctx, &Event{
		Name: a.set.name, Key: a.key, Owner: a.claim.Owner, Op: OpAcquire, TTL: a.claim.TTL,
		Start: a.guard.epoch.Add(sent), Duration: a.took, Aside: a.set.aside, Err: err,
	}, pickCall)
}
