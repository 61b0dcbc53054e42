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
