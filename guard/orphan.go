package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/lazyctx"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

const (
	// lateRequestWindow is how much later a request may still reach the store that was in flight
	// when its caller gave up. So an earlier clean-up must be repeated.
	lateRequestWindow = time.Second
	// patience is how long a release is tried without an answer after its claim must have ended.
	patience = 5 * time.Second
	// cleanUpsAtOnce bounds the clean-ups under way. If the store keeps a queue, queuedAtOnce does:
	// other waiters are behind the claims of callers that give up, so hundreds of these claims must
	// leave the queue soon.
	cleanUpsAtOnce = 32
	queuedAtOnce   = 256
	// slotPause is for how long a spare orphan gives way to the clean-ups under way.
	slotPause = 100 * time.Millisecond
	// maxOrphans bounds the orphans that wait for a clean-up.
	maxOrphans = 10_000
)

var (
	errTooManyOrphans = errors.New("too many claims wait to be released: this one is left to its TTL")
	errAbandoned      = errors.New("the Guard was closed before the store answered")
)

// An orphan is a claim that the store may have, and that no call uses: an acquire without an
// answer, a grant that came too late, or a release without an answer.
type orphan struct {
	claim driver.Claim
	// leave is what to leave behind, or nil for nothing.
	leave func() driver.After
	// late means that an attempt to acquire may arrive after a clean-up. Clean-ups are then
	// repeated, at growing intervals, until twice the TTL has passed since the last attempt.
	late bool
	// until is when to stop without an answer. The default is twice the TTL from now.
	until time.Duration

	// For the hooks, if there are any. The event has no Start.
	hooks hooks
	ctx   context.Context //nolint:containedctx // the context of the event
	event Event
	op    driver.Op

	since     time.Duration // when it became an orphan
	next      time.Duration // when to clean up (again)
	interval  time.Duration // the pause before the next repetition
	tries     int
	state     orphanState
	permanent bool // the last clean-up has failed, and another one would fail, too
	err       error
	dropped   chan struct{} // closed if the orphan gives way to another one
	last      bool          // there is one attempt: the cleaner was abandoned before
}

// An orphanState says what clean-ups have reached.
type orphanState uint8

const (
	orphanUnanswered orphanState = iota // the store has answered none
	orphanAnswered                      // it has answered, but a late attempt may arrive
	orphanReleased                      // it has answered one sent after late attempts
)

// latestRequest returns the time by which a late attempt should have arrived.
func (o *orphan) latestRequest() time.Duration { return o.since + min(o.claim.TTL, lateRequestWindow) }

// isUnresolved reports whether the store may still have the claim, or its marker may not have been
// written.
func (o *orphan) isUnresolved(now time.Duration) bool {
	return o.state == orphanUnanswered && (o.leave != nil || now < o.since+o.claim.TTL)
}

// isSpare reports whether the orphan may be dropped to make room: the store has answered a
// clean-up, or none can succeed.
func (o *orphan) isSpare() bool { return o.state != orphanUnanswered || o.permanent }

// A cleaner releases orphans in the background. Each has a goroutine of its own, which ends when
// nothing remains to be done for the orphan. When the Guard is closed, the cleaner goes on until
// each was answered, or until it is abandoned.
type cleaner struct {
	guard     *Guard
	slots     chan struct{} // clean-ups under way
	abandoned *lazyctx.Stop // ends the calls under way

	mu      sync.Mutex
	waiting map[*orphan]struct{} // orphans that the store may have, and that are not tried now
	spare   map[*orphan]struct{} // orphans that give way to others, and that are not tried now
	trying  int                  // the others
	lost    int                  // claims that were not released when the Guard was closed
}

func (c *cleaner) init(g *Guard) {
	c.guard, c.abandoned = g, lazyctx.NewStop()
	c.slots = make(chan struct{}, cleanUpsAtOnce)
	if g.facts.Queue {
		c.slots = make(chan struct{}, queuedAtOnce)
	}
	c.waiting, c.spare = map[*orphan]struct{}{}, map[*orphan]struct{}{}
}

// add leaves an orphan to the cleaner. If Close has abandoned the cleaner, add waits for the one
// attempt that is made then.
func (c *cleaner) add(o orphan) {
	o.claim.Repeated = true
	o.since = c.guard.clock.Now()
	o.next = o.since
	o.interval = min(lateRequestWindow, o.claim.TTL)
	o.dropped = make(chan struct{})
	o.last = c.abandoned.Err() != nil
	if o.until == 0 {
		o.until = o.since + 2*o.claim.TTL
	}
	if !c.keep(&o) {
		o.err = errTooManyOrphans
		o.report(c.guard, false)
		return
	}
	o.report(c.guard, true)
	tried := make(chan struct{})
	c.guard.background.start(func() {
		defer close(tried)
		c.run(&o)
	})
	if o.last {
		<-tried
	}
}

// keep adds an orphan to those that wait, if there is room, or one that gives way to it.
func (c *cleaner) keep(o *orphan) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting)+len(c.spare)+c.trying >= maxOrphans {
		if len(c.spare) == 0 {
			return false
		}
		for other := range c.spare {
			delete(c.spare, other)
			close(other.dropped)
			break
		}
	}
	c.waiting[o] = struct{}{}
	return true
}

// run cleans up until nothing remains to be done, or can be done. If the Locker ends the goroutine,
// another one goes on.
func (c *cleaner) run(o *orphan) {
	over := false
	defer func() {
		if !over {
			c.guard.background.start(func() { c.run(o) })
		}
	}()
	for c.await(o) {
		c.try(o)
	}
	over = true
	c.drop(o)
}

// await waits until the orphan is to be cleaned up. It returns false if nothing remains to be done,
// or can be done.
func (c *cleaner) await(o *orphan) bool {
	g := c.guard
	for {
		now, next, closing := g.clock.Now(), min(o.next, o.until), g.closing.Done()
		if g.isClosed() {
			closing = nil // from now on
			if o.isSpare() && now < o.latestRequest() {
				next = min(next, o.latestRequest()) // a late attempt is awaited no longer than that
			}
		}
		switch {
		case c.isOver(o, now):
			return false
		case next > now:
			g.sleep(next, o.dropped, c.abandoned.Done(), closing)
		case c.begin(o):
			return true
		}
	}
}

// isOver reports whether nothing remains to be done, or can be done, for the orphan.
func (c *cleaner) isOver(o *orphan, now time.Duration) bool {
	closed := c.guard.isClosed()
	select {
	case <-o.dropped:
		return true
	default:
	}
	switch {
	case o.state != orphanUnanswered && (!o.late || o.state == orphanReleased && (closed || now >= o.until)):
		return true
	case c.abandoned.Err() != nil:
		return !o.last || o.tries > 0
	}
	return closed && o.permanent || o.tries > 0 && now >= o.until
}

// begin begins a clean-up. It waits if too many are under way, and returns false if the orphan is
// over by then. A spare orphan does not wait, so that claims come first that the store may have.
func (c *cleaner) begin(o *orphan) bool {
	now := c.guard.clock.Now
	if o.isSpare() && len(c.slots) == cap(c.slots) {
		o.next = now() + slotPause
		return false
	}
	if !o.last {
		select {
		case c.slots <- struct{}{}:
		case <-c.abandoned.Done():
			return false
		}
	}
	if c.isOver(o, now()) {
		c.end(o)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, o)
	delete(c.spare, o)
	c.trying++
	return true
}

// end ends what begin has begun.
func (c *cleaner) end(o *orphan) {
	if !o.last {
		<-c.slots
	}
}

// try cleans up once.
func (c *cleaner) try(o *orphan) {
	g := c.guard
	after := driver.After{}
	if o.leave != nil {
		after = o.leave()
	}
	sent, within := g.clock.Now(), max(o.claim.TTL/3, time.Second)
	if o.last {
		within = time.Second
	}
	call := lazyctx.NewCall(g.detached(), g.clock.Time(sent+min(o.claim.TTL, within)), 0)
	if !o.last {
		call.Stop = c.abandoned
	}
	defer call.End(nil)
	err := errAborted // unless Release returns
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errAborted, p)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		o.note(g, sent, err)
		if o.isSpare() {
			c.spare[o] = struct{}{}
		} else {
			c.waiting[o] = struct{}{}
		}
		c.trying--
		c.end(o)
	}()
	_, err = g.releaseClaim(call, o.claim, after)
}

// drop ends the work on the orphan.
func (c *cleaner) drop(o *orphan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, o)
	delete(c.spare, o)
	abandoned := c.abandoned.Err() != nil
	if abandoned && o.state == orphanUnanswered {
		o.err = errors.Join(errAbandoned, o.err)
	}
	if (abandoned || c.guard.isClosed()) && o.isUnresolved(c.guard.clock.Now()) {
		c.lost++
	}
	o.report(c.guard, false)
}

// unreleased returns how many claims were not released when the Guard was closed.
func (c *cleaner) unreleased() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.lost
	for _, some := range []map[*orphan]struct{}{c.waiting, c.spare} {
		for o := range some {
			if o.isUnresolved(c.guard.clock.Now()) {
				n++
			}
		}
	}
	return n
}

// note takes the answer to a clean-up that was sent at an instant.
func (o *orphan) note(g *Guard, sent time.Duration, err error) {
	now := g.clock.Now()
	o.tries++
	o.err, o.permanent = nil, err != nil && queue.Permanent(err)
	switch {
	case err != nil:
		o.err = asStoreError(driver.OpCleanUp, o.claim.Key, err)
		o.next = now + g.jitter.Retry(o.tries)
		if o.permanent { // unless someone corrects the cause
			o.next = o.until
		}
	case o.leave != nil && o.late: // from now on it is an acquire without an answer
		o.leave, o.since, o.until = nil, now, now+2*o.claim.TTL
		o.next = now + o.interval
	default:
		o.state = max(o.state, orphanAnswered)
		if sent >= o.latestRequest() {
			o.state = orphanReleased
		}
		o.next = now + o.interval
		o.interval += o.interval / 2
	}
	o.reportCall(g, sent, now-sent)
}

// newOrphan returns the orphan that a call to the store has left. Hooks are called for it.
func (g *Guard) newOrphan(ctx context.Context, set *settings, key string, op driver.Op, c driver.Claim) orphan {
	o := orphan{claim: c}
	if len(set.hooks) > 0 {
		o.hooks, o.ctx, o.op, o.event = set.hooks, context.WithoutCancel(ctx), op, g.event(set, key, c.Owner, 0)
	}
	return o
}

// report has the hooks called for the begin, or the end, of the work on the orphan.
func (o *orphan) report(g *Guard, begins bool) {
	if len(o.hooks) == 0 {
		return
	}
	e := OrphanEvent{Event: o.event, Op: o.op, Pending: begins, Attempts: o.tries}
	e.Start = g.clock.Time(o.since)
	if !begins {
		e.Duration, e.Err = g.clock.Now()-o.since, o.err
	}
	hs, ctx := o.hooks, o.ctx
	g.reporter.report(&e.Event, true, func() { hs.call(func(h *Hook) { send(ctx, h.Orphan, e) }) })
}

// reportCall has the hooks called for a clean-up.
func (o *orphan) reportCall(g *Guard, sent, took time.Duration) {
	if len(o.hooks) == 0 {
		return
	}
	e := CallEvent{Event: o.event, Op: driver.OpCleanUp, Duration: took, Err: o.err}
	e.Start = g.clock.Time(sent)
	g.reporter.reportCall(o.ctx, o.hooks, e)
}
