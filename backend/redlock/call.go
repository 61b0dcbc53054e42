package redlock

import (
	"context"
	"sync/atomic"
	"time"
)

// A callContext is the context of the requests to the nodes for one call. They go on after the
// caller has its answer. It has the values of the caller's context. It ends at its deadline, or
// when all nodes have answered. It makes a timer only for a node that asks for its Done channel.
type callContext struct {
	context.Context // has the values, and never ends
	deadline        time.Time
	open            atomic.Int32 // requests without an answer
	timed           atomic.Pointer[timedContext]
}

type timedContext struct {
	context.Context
	cancel context.CancelFunc
}

// begin makes it the context of that many requests. Its deadline is that of ctx, or after longest
// if that is sooner.
func (c *callContext) begin(ctx context.Context, longest time.Duration, requests int) {
	c.Context = context.WithoutCancel(ctx)
	c.deadline = time.Now().Add(longest)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(c.deadline) {
		c.deadline = deadline
	}
	c.open.Store(int32(requests))
}

// answered ends one of the requests.
func (c *callContext) answered() {
	if c.open.Add(-1) <= 0 {
		c.cancel()
	}
}

// end ends all requests that are left, because they were not sent.
func (c *callContext) end() {
	c.open.Store(0)
	c.cancel()
}

func (c *callContext) cancel() {
	if t := c.timed.Load(); t != nil {
		t.cancel()
	}
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} {
	if t := c.timed.Load(); t != nil {
		return t.Done()
	}
	ctx, cancel := context.WithDeadline(c.Context, c.deadline)
	if !c.timed.CompareAndSwap(nil, &timedContext{ctx, cancel}) {
		cancel()
		return c.timed.Load().Done()
	}
	if c.open.Load() <= 0 {
		cancel() // answered may not have seen it
	}
	return ctx.Done()
}

// Err implements context.Context.
func (c *callContext) Err() error {
	if t := c.timed.Load(); t != nil {
		return t.Err()
	}
	if c.open.Load() <= 0 {
		return context.Canceled
	}
	if !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// glance is how long a caller waits for the nodes before it watches its context, too. Most answers
// come sooner, and the Done channel of a Guard's call costs a timer.
const glance = 20 * time.Millisecond

// A waiter is what a caller waits with. It is used for one call after the other.
type waiter struct {
	ready chan struct{} // has room for one
	soon  *time.Timer
	ended <-chan struct{} // the caller's context has ended; nil until it is watched
}

// newWaiter returns a waiter for a call. The caller calls free.
func (l *Locker) newWaiter() *waiter {
	w, ok := l.waiters.Get().(*waiter)
	if !ok {
		return &waiter{ready: make(chan struct{}, 1), soon: time.NewTimer(glance)}
	}
	w.soon.Reset(glance)
	return w
}

// wait waits for wake, and returns true if patience comes first. It returns the error of ctx if
// that has ended.
func (w *waiter) wait(ctx context.Context, patience <-chan time.Time) (late bool, err error) {
	for {
		select {
		case <-w.ready:
			return false, nil
		case <-patience:
			return true, nil
		case <-w.ended:
			return false, ctx.Err()
		case <-w.soon.C:
			w.ended = ctx.Done()
		}
	}
}

// wake ends the caller's wait, or its next one.
func (w *waiter) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// free makes the waiter available to another call. Nothing may call wake afterwards.
func (l *Locker) free(w *waiter) {
	w.soon.Stop()
	w.ended = nil
	select {
	case <-w.ready:
	default:
	}
	l.waiters.Put(w)
}
