package guard

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
	"github.com/seed-1795987d/onerun/guard/internal/lazyctx"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

// answerGrace is how long beyond WithWait a call waits for an answer of the store.
const answerGrace = time.Second

// An acquisition is one call's way to a lease: as many requests as it takes.
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
	local  *queue.Local[*acquisition] // the waiter, if it is this one, or nil
	// offered is the lease that was handed off to the call last. Guard.mu guards it.
	offered *hold

	claim     Claim
	stored    storedClaim
	late      bool // a request had no answer: it may still arrive
	requests  int
	sent      time.Duration // when the last request was sent
	anchor    time.Duration // see tenure.count
	firstCall lazyctx.Context
	last      Grant         // the last answer, for events
	waitFrom  time.Duration // when the key was first found busy, or clock.Never
	previous  queue.Previous
	got       *hold

	unprompted bool // the last request was made because of the time alone
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

// acquire takes a lease on the key, which the store knows as stored. It returns a hold that is in
// the schedule, or the error of a call whose function did not run. The caller must call endLease
// on the hold.
func (g *Guard) acquire(ctx context.Context, key, stored string, set *settings) (*hold, error) {
	a, err := g.newAcquisition(ctx, key, stored, set)
	if err != nil {
		return nil, err
	}
	defer a.exit()
	if len(set.hooks) > 0 {
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
	if len(set.hooks) > 0 {
		set = set.on()
	}
	now := g.clock.Now()
	l := queue.Limits{Deadline: now, GiveUp: now + requestTimeout(set.ttl), Announce: len(set.hooks) > 0}
	if set.wait > 0 {
		l.Deadline = now + min(set.wait, clock.Never-now)
		l.GiveUp = l.Deadline + min(answerGrace, clock.Never-l.Deadline)
	}
	a := &acquisition{guard: g, key: key, set: set, caller: ctx, ctx: ctx, start: now, waitFrom: clock.Never}
	a.retries, a.previous.Ends = queue.NewRetries(g.jitter, l), clock.Never
	a.claim = Claim{Key: stored, Owner: set.owner, TTL: set.ttl, Label: set.label, Among: set.among, Waits: set.wait > 0}
	if set.fair {
		a.claim.Queue = queueMode(set)
	}
	if !g.enter() {
		return nil, &ClosedError{Key: key}
	}
	return a, nil
}

// queueMode returns the relation of a claim with these settings to the queue of the store.
func queueMode(set *settings) driver.QueueMode {
	switch {
	case !set.fair:
		return driver.Unqueued
	case set.wait <= 0:
		return driver.YieldToQueue
	}
	return driver.Queued
}

// begin calls the hooks.
func (a *acquisition) begin() {
	a.identify()
	e := a.event(a.start, nil)
	a.ctx = hooks(a.set.hooks).start(a.caller, &e, pickAcquireStart)
	a.claim.Label = hooks(a.set.hooks).label(a.ctx, a.set.label)
}

// get gets a lease, or the error with which the call gives up.
func (a *acquisition) get() (*hold, error) {
	if a.set.wait > 0 || a.set.joins() {
		return a.wait()
	}
	return a.settle(a.ask(false))
}

// settle asks again until the store has answered, for a call that does not wait for a busy key. h
// and err are the result of the last request.
func (a *acquisition) settle(h *hold, err error) (*hold, error) {
	for h == nil && err == nil {
		if !a.guard.sleep(a.askAt, nil, a.caller.Done(), a.guard.closing) {
			return nil, a.interrupted()
		}
		h, err = a.ask(false)
	}
	return h, err
}

// wait does what the waiter says, until the claim is granted or the call gives up.
func (a *acquisition) wait() (*hold, error) {
	if h, err := a.share(); h != nil || err != nil {
		return h, err
	}
	a.newWaiter()
	for {
		step := a.next()
		switch step.Move {
		case queue.Ask:
			a.previous, a.unprompted = step.Previous, step.Unprompted
			if h, err := a.ask(step.Reserve || a.set.joins()); h != nil || err != nil {
				return h, err
			}
		case queue.Take:
			if h, err := a.take(); h != nil || err != nil {
				return h, err
			}
		case queue.Announce:
			a.waits(step.Grant)
			e := a.event(a.waitFrom, nil)
			hooks(a.set.hooks).call(a.ctx, &e, pickWait)
		case queue.Rest:
			if step.Waiting {
				a.waits(step.Grant)
			}
			a.subscribe(step.Subscribe)
			if !a.guard.sleep(step.Until, step.Wake, a.caller.Done(), a.guard.closing) {
				return nil, a.interrupted()
			}
		case queue.Quit:
			return nil, a.refused(step.Grant, step.Err)
		}
	}
}

func (a *acquisition) newWaiter() {
	g := a.guard
	if a.set.fair {
		a.waiter = queue.NewFair(a.retries, a.set.ttl, func(stop func()) { g.queues.End(stop) })
		return
	}
	a.local = &queue.Local[*acquisition]{}
	a.local.Init(g.queues, g.queueID(a.claim.Key, a.set), termsOf(a.set), a.retries, a)
	a.waiter = a.local
}

func (a *acquisition) next() queue.Step {
	g := a.guard
	g.mu.Lock()
	defer g.unlock()
	return a.waiter.Next(g.clock.Now())
}

// waits notes since when the call waits.
func (a *acquisition) waits(busy Grant) {
	if !a.hasWaited() {
		a.waitFrom = a.guard.clock.Now()
		a.last = busy
	}
}

// subscribe begins a subscription at the store. The Locker may notify at once.
func (a *acquisition) subscribe(s *queue.Subscription) {
	if s == nil {
		return
	}
	g := a.guard
	notify := func(in time.Duration) {
		g.mu.Lock()
		defer g.mu.Unlock()
		s.Notify(g.clock.Now(), in)
	}
	var stop func()
	if a.claim.Queue == driver.Queued {
		stop = g.queuer.SubscribeClaim(a.claim.Key, a.claim.ID, notify)
	} else {
		stop = g.notifier.Subscribe(a.claim.Key, func() { notify(0) })
	}
	g.mu.Lock()
	over := s.Started(stop)
	g.mu.Unlock()
	if over {
		stop()
	}
}

// interrupted returns why the call must not go on, or nil.
func (a *acquisition) interrupted() error {
	if hasEnded(a.caller) {
		return contextEnded(a.caller, driver.OpAcquire, a.key)
	}
	select {
	case <-a.guard.closing:
		return &ClosedError{Key: a.key}
	default:
		return nil
	}
}

// refused returns the error of a call that gives up: err if it is not nil, or because the key is
// busy or done.
func (a *acquisition) refused(grant Grant, err error) error {
	switch {
	case errors.Is(err, queue.ErrUnanswered):
		return &StoreError{Op: driver.OpAcquire, Key: a.claim.Key, Kind: driver.KindTimeout, Err: err}
	case err != nil:
		return err
	}
	a.last = grant
	if grant.State == Done {
		return &DoneError{Key: a.key, Left: grant.Left, Record: grant.Record, Label: grant.Label}
	}
	return &BusyError{Key: a.key, Left: grant.Left, Label: grant.Label, Foreign: grant.Foreign, Waited: a.waited(a.guard.clock.Now())}
}

// end ends an acquisition with its result, which it returns.
func (a *acquisition) end(h *hold, err error) (*hold, error) {
	a.got = h
	if a.waiter != nil {
		a.leave()
	}
	if len(a.set.hooks) > 0 {
		a.report(err)
	}
	a.phase = phaseReturned
	if h != nil && h.over.Load() { // while a hook ran
		var r release
		h.endLease(a.caller, ending{}, &r)
		r.report()
		return nil, h.overtaken(a.caller, nil, false)
	}
	return h, err
}

// leave leaves the queue, unless the lease has already ended the wait. A lease that was handed off
// meanwhile is released.
func (a *acquisition) leave() {
	g := a.guard
	if a.waiter == nil || a.local != nil && a.got != nil {
		return
	}
	g.mu.Lock()
	offered := a.waiter.Leave()
	g.unlock()
	if offered {
		a.reject()
	}
}

// exit ends the acquisition, in whatever way the call ends: it returns, or the Locker or a hook
// has panicked or ended the goroutine.
func (a *acquisition) exit() {
	if a.phase == phaseReturned && a.got != nil {
		return
	}
	defer a.report(errAborted)
	defer a.giveBack()
	a.late = a.late || a.stored == storedUnknown
	a.leave()
}

// giveBack releases what the call has of the key: its lease, or what the store knows of its claim.
func (a *acquisition) giveBack() {
	if a.got == nil {
		a.cleanUp()
		a.guard.leave()
		return
	}
	var r release // a hook has ended the goroutine
	defer r.report()
	a.got.endLease(a.caller, ending{}, &r)
}

func (a *acquisition) hasWaited() bool { return a.waitFrom != clock.Never }

func (a *acquisition) waited(now time.Duration) time.Duration {
	if !a.hasWaited() {
		return 0
	}
	return now - a.waitFrom
}

// missedWakeUp reports whether the call has found out by itself that the key had been released. A
// call that has waited for a short time may not have subscribed yet.
func (a *acquisition) missedWakeUp(now time.Duration) bool {
	return a.unprompted && !a.handedOff && now < a.previous.Ends && a.waited(now) > jitter.LongestPoll
}
