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
	// cleanUpsAtOnce bounds the clean-ups under way. If the store keeps a queue, queuedAtOnce does:
	// other waiters are behind the claims of callers that give up, so hundreds of these claims must
	// leave the queue soon.
	cleanUpsAtOnce = 32
	queuedAtOnce   = 256
	// maxOrphans bounds the orphans that wait for a clean-up. maxDrops bounds how many end at
	// once, because callers wait for that.
	maxOrphans = 10_000
	maxDrops   = 100
)

var (
	errTooManyOrphans = errors.New("too many claims wait to be released: this one is left to its TTL")
	errAbandoned      = errors.New("the Guard was closed before the store answered")
)

// A cleaner releases orphans in the background, by a goroutine that ends when there are none. When
// the Guard is closed, it goes on until each was answered, or until it is abandoned.
type cleaner struct {
	guard *Guard
	wake  chan struct{}

	mu        sync.Mutex
	waiting   orphanHeap // orphans that the store may have, and that are not tried now
	droppable orphanHeap // orphans that give way to others, and that are not tried now
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
	o.claim.Repeated = true
	o.since = c.guard.clock.Now()
	o.next = o.since
	o.interval = min(lateRequestWindow, o.claim.TTL)
	if o.until == 0 {
		o.until = o.since + 2*o.claim.TTL
	}
	if c.enqueue(&o) {
		return
	}
	// In a goroutine of its own, in case the Locker ends it.
	done := make(chan struct{})
	c.guard.background.start(func() {
		defer close(done)
		defer c.finish(&o)
		c.try(c.guard.detached(), &o)
	})
	<-done
}

// enqueue adds an orphan to those that wait. It returns false if Close has abandoned the cleaner.
func (c *cleaner) enqueue(o *orphan) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting)+len(c.droppable)+c.trying >= maxOrphans && !c.makeRoom() {
		o.err = errTooManyOrphans
		o.report(c.guard, false)
		return true
	}
	o.report(c.guard, true)
	if c.abandoned {
		return false
	}
	heap.Push(&c.waiting, o)
	if !c.running {
		c.running = true
		c.guard.background.start(c.run)
	}
	signal(c.wake)
	return true
}

// makeRoom drops an orphan that gives way to others, and reports whether there is one. c.mu must
// be held.
func (c *cleaner) makeRoom() bool {
	last := len(c.droppable) - 1
	if last < 0 {
		return false
	}
	c.drop(c.droppable[last])
	c.droppable[last] = nil
	c.droppable = c.droppable[:last] // the rest is still a heap
	return true
}

func (c *cleaner) run() {
	ctx, stop := context.WithCancel(c.guard.detached())
	defer stop()
	c.mu.Lock()
	c.stop = stop
	if c.abandoned {
		stop()
	}
	c.mu.Unlock()
	closing := c.guard.closing.Done()
	for {
		next := c.startDue(ctx)
		if next < 0 {
			return
		}
		if !c.guard.sleep(next, c.wake, nil, closing) {
			closing = nil // once is enough
			c.expedite()
		}
	}
}

// startDue starts the clean-ups that are due: first those of claims that the store may have. It
// returns when to call it again unless the cleaner is woken before, which is negative if nothing
// is left.
func (c *cleaner) startDue(ctx context.Context) (next time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.guard.clock.Now()
	next = min(c.startFrom(ctx, &c.waiting, now), c.startFrom(ctx, &c.droppable, now))
	if len(c.waiting)+len(c.droppable)+c.trying == 0 {
		c.running = false
		return -1
	}
	return next
}

// startFrom is startDue for one of the heaps. c.mu must be held.
func (c *cleaner) startFrom(ctx context.Context, q *orphanHeap, now time.Duration) (next time.Duration) {
	for dropped := 0; len(*q) > 0; {
		o := (*q)[0]
		switch {
		case c.ended(o, now):
			if dropped++; dropped > maxDrops {
				return now
			}
			heap.Pop(q)
			c.drop(o)
		case o.next > now:
			return o.next
		case c.trying == c.atOnce():
			return clock.Never
		default:
			heap.Pop(q)
			c.trying++
			c.guard.background.start(func() { c.tryAndPlan(ctx, o) })
		}
	}
	return clock.Never
}

func (c *cleaner) atOnce() int {
	if c.guard.facts.Queue {
		return queuedAtOnce
	}
	return cleanUpsAtOnce
}

func (c *cleaner) tryAndPlan(ctx context.Context, o *orphan) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.trying--
		switch {
		case c.ended(o, c.guard.clock.Now()):
			c.drop(o)
		case o.isDroppable():
			c.plan(o)
			heap.Push(&c.droppable, o)
		default:
			heap.Push(&c.waiting, o)
		}
		signal(c.wake)
	}()
	c.try(ctx, o)
}

// expedite shortens the pauses, because the Guard is closed: a late attempt is awaited no longer
// than lateRequestWindow.
func (c *cleaner) expedite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for _, o := range c.droppable {
		c.plan(o)
	}
	heap.Init(&c.droppable)
}

// plan sets when to clean up a droppable orphan next, if the Guard is closed. c.mu must be held.
func (c *cleaner) plan(o *orphan) {
	switch {
	case !c.closing:
	case o.permanent:
		o.next = 0
	default:
		o.next = min(o.next, o.latestRequest())
	}
}

// ended reports whether nothing remains to be done, or can be done, for the orphan. c.mu must be
// held.
func (c *cleaner) ended(o *orphan, now time.Duration) bool {
	switch {
	case o.state != orphanUnanswered && (!o.late || o.state == orphanReleased && (c.closing || now >= o.until)):
		return true
	case c.abandoned, c.closing && o.permanent, o.tries > 0 && now >= o.until:
		return true
	}
	return false
}

func (c *cleaner) finish(o *orphan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(o)
}

// drop ends the work on the orphan. c.mu must be held.
func (c *cleaner) drop(o *orphan) {
	if c.abandoned && o.state == orphanUnanswered {
		o.err = errors.Join(errAbandoned, o.err)
	}
	if (c.closing || c.abandoned) && o.isUnresolved(c.guard.clock.Now()) {
		c.lost++
	}
	o.report(c.guard, false)
}

func (c *cleaner) try(ctx context.Context, o *orphan) {
	g := c.guard
	after := driver.After{}
	if o.leave != nil {
		after = o.leave()
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout(o))
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

// timeout returns for how long to wait for the answer to a clean-up.
func (c *cleaner) timeout(o *orphan) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned {
		return min(o.claim.TTL, time.Second)
	}
	return min(o.claim.TTL, max(o.claim.TTL/3, time.Second))
}

// abandon gives up what is not released yet. The calls under way are ended.
func (c *cleaner) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = true
	if c.stop != nil {
		c.stop()
	}
	signal(c.wake)
}

func (c *cleaner) unreleased() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.lost
	now := c.guard.clock.Now()
	for _, q := range []orphanHeap{c.waiting, c.droppable} {
		for _, o := range q {
			if o.isUnresolved(now) {
				n++
			}
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
