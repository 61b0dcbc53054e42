// Package lazyctx has a context that costs little until somebody waits for it.
package lazyctx

import (
	"context"
	"sync"
	"time"
)

// A Context ends with its parent, at a deadline, or when End is called. The standard library's
// context is made only when something asks for Done: many runs and calls end before that, and
// making one costs as much as the rest of the run. Err and Deadline work without it. The end is
// never missed: Err checks every reason to end, and a context that is made late has ended already
// if it should have.
//
// A Context is safe for concurrent use. It needs a parent, and InitCall if it is that of a call.
type Context struct {
	context.Context               // the parent
	Stop            *Stop         // ends it as well, or nil; it is set before the first use
	deadline        time.Time     // zero if it has none of its own
	grace           time.Duration // how long it outlives its parent

	mu     sync.Mutex
	whole  context.Context // nil until it is made
	cancel context.CancelCauseFunc
	ended  bool
	cause  error // why it was ended, before the whole was made
}

// InitCall makes c the context of a call. It ends at the deadline, or when grace has passed since
// the end of parent. End must be called when the call has returned.
func (c *Context) InitCall(parent context.Context, deadline time.Time, grace time.Duration) {
	if d, ok := parent.Deadline(); ok && grace == 0 && !d.After(deadline) {
		deadline = time.Time{} // a timer of its own could end it before the parent has ended
	}
	c.Context, c.deadline, c.grace = parent, deadline, grace
}

// A Stop is a context that many others end with. End ends it.
type Stop struct {
	context.Context
	End context.CancelFunc
}

// NewStop returns a Stop.
func NewStop() *Stop {
	ctx, end := context.WithCancel(context.Background())
	return &Stop{ctx, end}
}

// NewCall returns the context of a call, see InitCall.
func NewCall(parent context.Context, deadline time.Time, grace time.Duration) *Context {
	c := new(Context)
	c.InitCall(parent, deadline, grace)
	return c
}

// End ends the context, unless it has ended. A nil cause means context.Canceled.
func (c *Context) End(cause error) {
	c.mu.Lock()
	cancel := c.cancel
	if cancel == nil && !c.ended && (c.grace > 0 || c.Context.Err() == nil) {
		c.ended, c.cause = true, cause
	}
	c.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// make returns the standard library's context. It then stays for good: context.Cause, and contexts
// that are derived from c, find it through Value.
func (c *Context) make() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole != nil {
		return c.whole
	}
	parent := c.Context
	if c.ended || c.grace > 0 {
		parent = context.WithoutCancel(parent) // its end is not, or not yet, the reason
	}
	c.whole, c.cancel = context.WithCancelCause(parent)
	if c.ended {
		c.cancel(c.cause)
		return c.whole
	}
	if !c.deadline.IsZero() {
		cancel := c.cancel
		var stop context.CancelFunc
		c.whole, stop = context.WithDeadline(c.whole, c.deadline)
		c.cancel = func(cause error) { cancel(cause); stop() }
	}
	if c.grace > 0 {
		c.endAfterGrace()
	}
	if c.Stop != nil {
		cancel := c.cancel
		stop := context.AfterFunc(c.Stop, func() { cancel(nil) })
		c.cancel = func(cause error) { cancel(cause); stop() }
	}
	return c.whole
}

// endAfterGrace cancels the whole when the grace has passed since the end of the parent.
func (c *Context) endAfterGrace() {
	whole, cancel := c.whole, c.cancel
	stop := context.AfterFunc(c.Context, func() {
		timer := time.NewTimer(c.grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(nil)
		case <-whole.Done():
		}
	})
	c.cancel = func(cause error) { cancel(cause); stop() }
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) {
	if c.deadline.IsZero() {
		return c.Context.Deadline()
	}
	return c.deadline, true
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.make().Done() }

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	going := c.whole == nil && !c.ended && c.Context.Err() == nil && (c.Stop == nil || c.Stop.Err() == nil) &&
		(c.deadline.IsZero() || time.Until(c.deadline) > 0)
	c.mu.Unlock()
	if going {
		return nil
	}
	return c.make().Err()
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	from := c.whole
	c.mu.Unlock()
	if from == nil {
		from = c.Context
	}
	return from.Value(key)
}
