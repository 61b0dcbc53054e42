package guard

import (
	"context"
	"sync"
	"time"
)

const (
	// settle is how long after its cause a clean-up is repeated: a request that was on its way when
	// its caller gave up may arrive after the release that was to undo it.
	settle = time.Second
	// prompt is how soon an answer has to come to show that the store is not stuck. After a freeze, requests
	// that came on several connections are taken up in any order: a release that had waited may go
	// before the acquire that it was to undo.
	prompt = 250 * time.Millisecond
	// cleanersAtOnce bounds the releases that are under way, and mostLeftovers those that wait. A
	// claim beyond is left to its TTL.
	cleanersAtOnce = 8
	mostLeftovers  = 10_000
	// patience is how long after a claim must have ended a store that does not answer is asked.
	patience = 5 * time.Second
)

// A leftover is a claim that may or may not be in the store: an acquire without an answer, or a
// release without one.
type leftover struct {
	claim Claim
	after func() After  // what to leave behind, or nil for nothing
	until time.Duration // when the claim will have ended by itself
	told  orphan
	// orphans says, of a release, that attempts to take the lease may arrive after it.
	orphans bool

	since time.Duration // when it was left
	next  time.Duration // when to try (again)
	tries int
	gone  bool // nothing remains to be done
	err   error
}

// An orphan is what the hooks are told of a leftover.
type orphan struct {
	hooks hooks
	ctx   context.Context
	event Event
}

// orphanOf returns what to tell of a leftover of a call with these settings for the key; ctx is its context. Nothing of it is looked at if there are no
// hooks.
func orphanOf(ctx context.Context, set *settings, key string, op Op) orphan {
	if len(set.hooks) == 0 {
		return orphan{}
	}
	return orphan{hooks: set.hooks, ctx: context.WithoutCancel(ctx), event: Event{Name: set.name, Key: key, Op: op, Aside: set.aside}}
}

// tellOfOrphan tells the hooks of l that the work on it begins, or has ended.
func (g *Guard) tellOfOrphan(l *leftover, pending bool) {
	if len(l.told.hooks) == 0 {
		return
	}
	told, e := l.told, l.told.event
	e.Owner, e.TTL, e.Pending, e.Attempts, e.Err = l.claim.Owner, l.claim.TTL, pending, l.tries, l.err
	e.Start = g.epoch.Add(l.since)
	if !pending {
		e.Duration = g.now() - l.since
	}
	g.reporter.report(func() { told.hooks.tell(told.ctx, &e, pickOrphan) }, false)
}

// tellOfCleanUp tells the hooks of a call to the store for l that was sent at the instant sent.
func (g *Guard) tellOfCleanUp(l *leftover, sent, took time.Duration) {
	if len(l.told.hooks) == 0 {
		return
	}
	told, e := l.told, l.told.event
	e.Op, e.Owner, e.TTL, e.Start, e.Duration, e.Err = OpCleanUp, l.claim.Owner, l.claim.TTL, g.epoch.Add(sent), took, l.err
	g.reporter.report(func() { told.hooks.tell(told.ctx, &e, pickCall) }, true)
}

// cleaner releases leftovers in the background, by a goroutine that ends when there are none. When
// the Guard is closed, each is tried once more.
type cleaner struct {
	guard *Guard

	mu      sync.Mutex
	list    []*leftover
	running bool
}

func (c *cleaner) add(l leftover) {
	l.since = c.guard.now()
	l.next = l.since
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= mostLeftovers {
		return
	}
	c.list = append(c.list, &l)
	c.guard.tellOfOrphan(&l, true)
	if c.running {
		return
	}
	c.running = true
	c.guard.mu.Lock()
	defer c.guard.mu.Unlock()
	c.guard.inBackground(c.run)
}

func (c *cleaner) run() {
	for {
		due, last, sleep := c.due()
		if sleep < 0 {
			return
		}
		if len(due) > 0 {
			c.tryAll(due)
			if !last {
				continue
			}
		}
		if last {
			c.mu.Lock()
			for _, l := range c.list {
				c.guard.tellOfOrphan(l, false)
			}
			c.list, c.running = nil, false
			c.mu.Unlock()
			return
		}
		timer := time.NewTimer(sleep)
		select {
		case <-timer.C:
		case <-c.guard.closing:
		}
		timer.Stop()
	}
}

// due drops what is settled and returns what has to be tried now, whether it is for the last time, and how
// long to sleep if there is nothing; negative if nothing is left and the goroutine is to end.
func (c *cleaner) due() (due []*leftover, last bool, sleep time.Duration) {
	select {
	case <-c.guard.closing:
		last = true
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.guard.now()
	kept := c.list[:0]
	sleep = tick
	for _, l := range c.list {
		if l.gone {
			c.guard.tellOfOrphan(l, false)
			continue
		}
		kept = append(kept, l)
		if l.next <= now || last {
			due = append(due, l)
		} else {
			sleep = min(sleep, l.next-now)
		}
	}
	clear(c.list[len(kept):])
	c.list = kept
	if len(kept) == 0 {
		c.list, c.running = nil, false
		return nil, last, -1
	}
	return due, last, sleep
}

// tryAll tries the leftovers, a few at once.
func (c *cleaner) tryAll(due []*leftover) {
	places := make(chan struct{}, cleanersAtOnce)
	var all sync.WaitGroup
	for _, l := range due {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			c.try(l)
		})
	}
	all.Wait()
}

// try releases l once and decides whether, and when, to do so again.
func (c *cleaner) try(l *leftover) {
	g := c.guard
	after := After{}
	if l.after != nil {
		after = l.after()
	}
	sent := g.now()
	ctx, cancel := context.WithTimeout(g.uncalled(), min(l.claim.TTL, time.Second))
	defer cancel()
	_, err := g.locker.Release(ctx, l.claim, after)
	l.tries++
	now := g.now()
	l.err = nil
	if err != nil {
		l.err = asStoreError(OpCleanUp, l.claim.Key, err)
	}
	g.tellOfCleanUp(l, sent, now-sent)
	settled := l.since + min(l.claim.TTL, settle)
	switch {
	case err == nil && l.after != nil && l.orphans:
		l.after = nil // from now on it is an acquire without an answer
		l.next = max(settled, now+g.dice.retryPause(l.tries))
	case err == nil && (l.after != nil || sent >= settled && now-sent < prompt):
		l.gone = true
	case err == nil:
		l.gone = now >= l.until+patience
		l.next = max(settled, now+g.dice.retryPause(l.tries))
	default:
		l.gone = permanent(err) || now >= l.until+patience
		l.next = now + g.dice.retryPause(l.tries)
	}
}
