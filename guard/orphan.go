package guard

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
)

const (
	// settle is how long a request that was under way when its caller gave up may at least take to
	// arrive: a clean-up before that proves nothing.
	settle = time.Second
	// patience is how long after its claim must have ended a release is tried without an answer.
	patience = 5 * time.Second
	// cleanUpsAtOnce bounds the clean-ups under way, and mostOrphans the orphans that wait for
	// one.
	cleanUpsAtOnce = 32
	mostOrphans    = 10_000
)

var (
	errTooManyOrphans = errors.New("too many claims wait to be released: this one is left to its TTL")
	errAbandoned      = errors.New("the Guard was closed before the store answered")
)

// An orphan is a claim that the store may have, and that no call uses: an acquire without an
// answer, a grant that came too late, or a release without an answer.
type orphan struct {
	claim Claim
	// leave is what to leave behind, or nil for nothing.
	leave func() After
	// late means that an attempt to acquire may arrive after a clean-up. Clean-ups are then
	// repeated, at growing intervals, until twice the TTL has passed since the last attempt.
	late bool
	// until is when to stop without an answer. The default is twice the TTL from now.
	until  time.Duration
	report orphanReport

	since    time.Duration // when it became an orphan
	next     time.Duration // when to clean up (again)
	interval time.Duration // to the next repetition
	tries    int
	answered bool // the store has answered a clean-up
	settled  bool // and one that was sent when a late attempt should have arrived
	err      error
}

// settles returns the time by which a late attempt should have arrived.
func (o *orphan) settles() time.Duration { return o.since + min(o.claim.TTL, settle) }

// holds reports whether the store may still have the claim, or lacks what it was to be left.
func (o *orphan) holds(now time.Duration) bool {
	return !o.answered && (o.leave != nil || now < o.since+o.claim.TTL)
}

// A cleaner releases orphans in the background, by a goroutine that ends when there are none. When
// the Guard is closed, it goes on until each was answered, or until it is abandoned.
type cleaner struct {
	guard *Guard
	wake  chan struct{}

	mu        sync.Mutex
	waiting   orphanHeap // those that are not tried now
	trying    int
	running   bool
	closing   bool
	abandoned bool
	stop      context.CancelFunc // ends the calls under way
	lost      int                // claims that were not released when the Guard was closed
}

func (c *cleaner) init(g *Guard) {
	c.guard = g
	c.wake = make(chan struct{}, 1)
}

// add leaves an orphan to the cleaner. If Close has abandoned the cleaner, add makes one attempt
// itself.
func (c *cleaner) add(o orphan) {
	o.since = c.guard.clock.Now()
	o.next = o.since
	o.interval = min(settle, o.claim.TTL)
	if o.until == 0 {
		o.until = o.since + 2*o.claim.TTL
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting)+c.trying >= mostOrphans && !c.makeRoom() {
		o.err = errTooManyOrphans
		c.guard.reportOrphan(&o, false)
		return
	}
	c.guard.reportOrphan(&o, true)
	if c.abandoned {
		c.mu.Unlock()
		c.try(c.guard.detached(), &o)
		c.mu.Lock()
		c.drop(&o)
		return
	}
	heap.Push(&c.waiting, &o)
	if !c.running {
		c.running = true
		ctx, stop := context.WithCancel(c.guard.detached())
		c.stop = stop
		c.guard.background.start(func() { defer stop(); c.run(ctx) })
	}
	c.signal()
}

// makeRoom drops an orphan that is only cleaned up again to be safe, or that cannot be, and reports
// whether there is one. c.mu must be held.
func (c *cleaner) makeRoom() bool {
	for i, o := range c.waiting {
		if o.answered || permanent(o.err) {
			heap.Remove(&c.waiting, i)
			c.drop(o)
			return true
		}
	}
	return false
}

func (c *cleaner) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cleaner) run(ctx context.Context) {
	closing := c.guard.closing
	for {
		next := c.startDue(ctx)
		if next < 0 {
			return
		}
		if !c.guard.sleep(next, c.wake, nil, closing) {
			closing = nil // once is enough
			c.hurry()
		}
	}
}

// startDue starts the clean-ups that are due. It returns when to call it again unless the cleaner
// is woken before, which is negative if nothing is left.
func (c *cleaner) startDue(ctx context.Context) (next time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.guard.clock.Now()
	for len(c.waiting) > 0 {
		o := c.waiting[0]
		switch {
		case c.ended(o, now):
			heap.Pop(&c.waiting)
			c.drop(o)
			continue
		case o.next > now:
			return o.next
		case c.trying == cleanUpsAtOnce:
			return clock.Never
		}
		heap.Pop(&c.waiting)
		c.trying++
		c.guard.background.start(func() { c.tryAndPlan(ctx, o) })
	}
	if c.trying > 0 {
		return clock.Never
	}
	c.running = false
	return -1
}

// tryAndPlan cleans up once, and plans what follows.
func (c *cleaner) tryAndPlan(ctx context.Context, o *orphan) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.trying--
		if c.ended(o, c.guard.clock.Now()) {
			c.drop(o)
		} else {
			c.plan(o)
			heap.Push(&c.waiting, o)
		}
		c.signal()
	}()
	c.try(ctx, o)
}

// hurry shortens the pauses, because the Guard is closed: a late attempt is awaited no longer than
// it takes to settle.
func (c *cleaner) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for _, o := range c.waiting {
		c.plan(o)
	}
	heap.Init(&c.waiting)
}

// plan sets when to clean up next, if the Guard is closed. c.mu must be held.
func (c *cleaner) plan(o *orphan) {
	switch {
	case !c.closing:
	case permanent(o.err):
		o.next = 0
	case o.answered:
		o.next = min(o.next, o.settles())
	}
}

// ended reports whether nothing remains to be done, or can be done, for the orphan. c.mu must be
// held.
func (c *cleaner) ended(o *orphan, now time.Duration) bool {
	switch {
	case o.answered && (!o.late || o.settled && (c.closing || now >= o.until)):
		return true
	case c.abandoned, c.closing && permanent(o.err), o.tries > 0 && now >= o.until:
		return true
	}
	return false
}

// drop ends the work on the orphan. c.mu must be held.
func (c *cleaner) drop(o *orphan) {
	if c.abandoned && !o.answered {
		o.err = errors.Join(errAbandoned, o.err)
	}
	if (c.closing || c.abandoned) && o.holds(c.guard.clock.Now()) {
		c.lost++
	}
	c.guard.reportOrphan(o, false)
}

// try releases the orphan once.
func (c *cleaner) try(ctx context.Context, o *orphan) {
	g := c.guard
	after := After{}
	if o.leave != nil {
		after = o.leave()
	}
	ctx, cancel := context.WithTimeout(ctx, min(o.claim.TTL, time.Second))
	defer cancel()
	sent := g.clock.Now()
	err := errAborted // unless Release returns
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errAborted, p)
		}
		o.note(g, sent, err)
	}()
	_, err = g.releaseClaim(ctx, o.claim, after)
}

// note takes the answer to a clean-up that was sent at an instant.
func (o *orphan) note(g *Guard, sent time.Duration, err error) {
	now := g.clock.Now()
	o.tries++
	o.err = nil
	switch {
	case err != nil:
		o.err = asStoreError(driver.OpCleanUp, o.claim.Key, err)
		o.next = now + g.jitter.Retry(o.tries)
		if permanent(err) { // unless someone corrects the cause
			o.next = max(o.until, now+1)
		}
	case o.leave != nil && o.late: // from now on it is an acquire without an answer
		o.leave, o.since, o.until = nil, now, now+2*o.claim.TTL
		o.next = now + o.interval
	default:
		o.answered = true
		o.settled = o.settled || sent >= o.settles()
		o.next = min(now+o.interval, max(o.until, now+1))
		o.interval += o.interval / 2
	}
	g.reportCleanUp(o, sent, now-sent)
}

// abandon gives up what is not released yet. The calls under way are ended.
func (c *cleaner) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = true
	if c.running {
		c.stop()
	}
	c.signal()
}

// unreleased returns how many claims were not released when the Guard was closed.
func (c *cleaner) unreleased() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.lost
	now := c.guard.clock.Now()
	for _, o := range c.waiting {
		if o.holds(now) {
			n++
		}
	}
	return n
}

// orphanHeap is a heap of orphans by when to clean them up. It implements heap.Interface.
type orphanHeap []*orphan

func (q orphanHeap) Len() int           { return len(q) }
func (q orphanHeap) Less(i, j int) bool { return q[i].next < q[j].next }
func (q orphanHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *orphanHeap) Push(x any)        { *q = append(*q, x.(*orphan)) }

func (q *orphanHeap) Pop() any {
	last := len(*q) - 1
	o := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return o
}
