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

// An acquisition is one call's way to a lease: as many requests as it takes. A waiter decides when
// to make them.
type acquisition struct {
	guard  *Guard
	key    string // as the caller gave it
	set    *settings
	caller context.Context
	ctx    context.Context // the caller's, with what the hooks have put in
	start  time.Duration
	giveUp time.Duration // until when to wait for an answer

	waiter   queue.Waiter
	local    *queue.Local    // the waiter, if it is this one, or nil
	unqueued *queue.Unqueued // the waiter, if it is this one, or nil

	claim     Claim
	requests  int
	firstCall lazyctx.Context
	last      lastAnswer
	waitFrom  time.Duration // when the key was first found busy, or clock.Never
	previous  queue.Previous
	got       *hold

	late       bool // a request had no answer: it may still arrive
	unused     bool // the store has granted the claim, and the call does not use it (yet)
	asking     bool // a request is under way
	queued     bool // the store has queued the claim, or keeps others away for it
	unprompted bool // the last request was made because of the time alone
	handedOff  bool // the lease came from another call
	reported   bool // the hooks were called for the end
	returned   bool
}

// An impatientAcquisition is that of a call that does not wait, with its waiter in one allocation.
type impatientAcquisition struct {
	acquisition
	waiter queue.Unqueued
}

// lastAnswer is what events report of the store's last answer.
type lastAnswer struct {
	state   State
	left    time.Duration
	label   string
	foreign bool
}

func (l *lastAnswer) set(g Grant) { *l = lastAnswer{g.State, g.Left, g.Label, g.Foreign} }

// acquire takes a lease on the key, which the store knows as stored. It returns a hold that is in
// the schedule, or the error of a call whose function did not run. The caller must call endLease
// on the hold.
func (g *Guard) acquire(ctx context.Context, key, stored string, set *settings) (*hold, error) {
	if ctx.Err() != nil {
		return nil, contextEnded(ctx, driver.OpAcquire, key)
	}
	if !g.enter() {
		return nil, &ClosedError{Key: key}
	}
	a := g.newAcquisition(ctx, key, stored, set)
	defer a.exit()
	a.begin()
	h, err := a.loop()
	a.got = h
	set.first.leave() // the others do not wait for the hooks
	a.leave()
	a.report(err)
	a.returned = true
	if h != nil && h.over.Load() { // while a hook ran
		var r release
		h.endLease(ctx, ending{}, &r)
		r.report()
		return nil, h.overtaken(ctx, nil, false)
	}
	return h, err
}

func (g *Guard) newAcquisition(ctx context.Context, key, stored string, set *settings) *acquisition {
	now := g.clock.Now()
	var a *acquisition
	if set.wait <= 0 && !set.joins() {
		impatient := &impatientAcquisition{}
		a = &impatient.acquisition
		a.unqueued = &impatient.waiter
	} else {
		a = &acquisition{}
	}
	a.guard, a.key, a.set, a.caller, a.ctx, a.start = g, key, set.on(), ctx, ctx, now
	a.waitFrom, a.previous.Ends = clock.Never, clock.Never
	a.claim = Claim{Key: stored, Owner: set.owner, TTL: set.ttl, Label: set.label, Queue: queueMode(set), Among: set.among, Waits: set.wait > 0}
	l := queue.Limits{Deadline: now, GiveUp: now + requestTimeout(set.ttl), Announce: len(a.set.hooks) > 0}
	if set.wait > 0 {
		l.Deadline = now + min(set.wait, clock.Never-now)
		l.GiveUp = l.Deadline + min(answerGrace, clock.Never-l.Deadline)
	}
	a.giveUp = l.GiveUp
	switch {
	case a.unqueued != nil:
		a.unqueued.Init(g.jitter, l)
		a.waiter = a.unqueued
	case set.fair:
		a.waiter = queue.NewFair(g.jitter, l, set.ttl, func(stop func()) { g.queues.End(stop) })
	default:
		a.local = &queue.Local{}
		a.local.Init(g.queues, g.queueID(stored, set), termsOf(set), l, a)
		a.waiter = a.local
	}
	return a
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
	if len(a.set.hooks) == 0 {
		return
	}
	a.identify()
	e := a.event(a.start, nil)
	a.ctx = hooks(a.set.hooks).start(a.caller, &e, pickAcquireStart)
	a.claim.Label = hooks(a.set.hooks).label(a.ctx, a.set.label)
}

// loop does what the waiter says, until the claim is granted or the call gives up.
func (a *acquisition) loop() (*hold, error) {
	if h, err := a.share(); h != nil || err != nil {
		return h, err
	}
	for {
		step := a.next()
		if step.Move != queue.Ask {
			a.set.first.leave() // what the call rests for may wait for the others' requests
		}
		switch step.Move {
		case queue.Ask:
			if h, err := a.ask(step); h != nil || err != nil {
				return h, err
			}
		case queue.Take:
			if h, err := a.take(step.Lease.(*hold)); h != nil || err != nil {
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
			return nil, a.refused(step)
		}
	}
}

// next returns what to do next. An unqueued waiter shares nothing, so it needs no lock.
func (a *acquisition) next() queue.Step {
	g := a.guard
	if a.unqueued != nil {
		return a.unqueued.Next(g.clock.Now())
	}
	g.mu.Lock()
	defer g.unlock()
	return a.waiter.Next(g.clock.Now())
}

// waits notes since when the call waits.
func (a *acquisition) waits(busy Grant) {
	if !a.hasWaited() {
		a.waitFrom = a.guard.clock.Now()
		a.last.set(busy)
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

// refused returns the error of a call that gives up.
func (a *acquisition) refused(step queue.Step) error {
	switch {
	case errors.Is(step.Err, queue.ErrUnanswered):
		return &StoreError{Op: driver.OpAcquire, Key: a.claim.Key, Kind: driver.KindTimeout, Err: step.Err}
	case step.Err != nil:
		return step.Err
	}
	a.last.set(step.Grant)
	if g := step.Grant; g.State == Done {
		return &DoneError{Key: a.key, Left: g.Left, Record: g.Record, Label: g.Label}
	}
	return &BusyError{Key: a.key, Left: a.last.left, Label: a.last.label, Foreign: a.last.foreign, Waited: a.waited(a.guard.clock.Now())}
}

// leave leaves the queue. A lease that was handed off meanwhile is released.
func (a *acquisition) leave() {
	g := a.guard
	if a.unqueued != nil || a.local != nil && a.got != nil { // which has left with its lease
		return
	}
	g.mu.Lock()
	a.waiter.Leave()
	var rejected *hold
	if a.local != nil {
		rejected, _ = a.local.Reject().(*hold)
	}
	g.unlock()
	if rejected != nil {
		a.reject(rejected)
	}
}

// exit ends the acquisition, in whatever way the call ends: it returns, or the Locker or a hook
// has panicked or ended the goroutine.
func (a *acquisition) exit() {
	if a.returned && a.got != nil {
		return
	}
	defer a.report(errAborted)
	defer a.giveBack()
	a.late = a.late || a.asking
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
