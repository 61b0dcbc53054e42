package guard

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

// answerGrace is how long beyond WithWait a call waits for an answer of the store.
const answerGrace = time.Second

// wait does what the waiter says, until the claim is granted or the call gives up.
func (a *acquisition) wait() (*holder, error) {
	h, err := a.share()
	if h == nil && err == nil {
		a.newWaiter()
	}
	for h == nil && err == nil {
		step := a.next()
		switch step.Move {
		case queue.Ask:
			a.previous, a.unprompted = step.Previous, step.Unprompted
			h, err = a.ask(step.Reserve || a.set.joins())
		case queue.Take:
			h, err = a.take()
		case queue.Announce:
			a.markWaiting(step.Grant)
			a.reportWait()
		case queue.Rest:
			if step.Waiting {
				a.markWaiting(step.Grant)
			}
			a.subscribe(step.Subscribe)
			if !a.guard.sleep(step.Until, step.Wake, a.caller.Done(), a.guard.closing.Done()) {
				err = a.interrupted()
			}
		case queue.Quit:
			err = a.refused(step.Grant, step.Err)
		}
	}
	return h, err
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

// queueMode returns how a claim with these settings waits.
func queueMode(set *settings) driver.QueueMode {
	switch {
	case set.fair && set.wait > 0:
		return driver.Queued
	case set.fair:
		return driver.YieldToQueue
	case set.wait > 0:
		return driver.Retried
	}
	return driver.Unqueued
}

func (a *acquisition) next() queue.Step {
	g := a.guard
	g.mu.Lock()
	defer g.unlock()
	return a.waiter.Next(g.clock.Now())
}

func (a *acquisition) markWaiting(busy driver.Answer) {
	if !a.hasWaited() {
		a.waitFrom = a.guard.clock.Now()
		a.last = storeAnswer(busy)
	}
}

func (a *acquisition) hasWaited() bool { return a.waitFrom != clock.Never }

func (a *acquisition) waited(now time.Duration) time.Duration {
	if !a.hasWaited() {
		return 0
	}
	return now - a.waitFrom
}

// grantReason returns how a call that has waited got the key. A call that has waited for a short
// time may not have subscribed yet, and so cannot have missed a notification.
func (a *acquisition) grantReason(now time.Duration) GrantReason {
	switch {
	case a.handedOff:
		return GrantHandOff
	case now >= a.previous.Ends:
		return GrantTakeover
	case a.unprompted && a.waited(now) > jitter.LongestPoll:
		return GrantMissedWakeUp
	}
	return ""
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
	id := "" // any release
	if a.claim.Queue == driver.Queued {
		id = a.claim.ID
	}
	stop := g.subscriber.Subscribe(a.claim.Key, id, notify)
	g.mu.Lock()
	over := s.Started(stop)
	g.mu.Unlock()
	if over {
		stop()
	}
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
		_ = a.offered.lease.Release(a.caller)
	}
}

func (a *acquisition) reportWait() {
	e := WaitEvent{a.event(a.start), a.last}
	hooks(a.set.hooks).call(func(h *Hook) { send(a.ctx, h.Wait, e) })
}
