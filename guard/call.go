package guard

import (
	"context"
	"sync"
	"time"
)

// A callContext is the context of one call to the store: it has a deadline, and ends with the caller's context, or a grace
// after that. As with a lifetime, the standard library's context is made only when somebody asks for Done: a store that looks at
// Deadline, and at Err now and then, needs no timer.
type callContext struct {
	context.Context               // the caller's
	deadline        time.Time     // never after the caller's, if there is no grace
	grace           time.Duration // 0 to end with the caller's

	mu    sync.Mutex
	whole context.Context // nil until it is made
	stop  context.CancelFunc
	over  bool // the call has returned
}

// newCall returns the context for a call that begins now and may take as long as timeout. It ends with ctx if grace is 0, and else when
// that has passed since. end has to follow.
func (g *Guard) newCall(ctx context.Context, now, timeout, grace time.Duration) *callContext {
	c := &callContext{Context: ctx, deadline: g.epoch.Add(now + timeout), grace: grace}
	if d, ok := ctx.Deadline(); ok && grace == 0 && d.Before(c.deadline) {
		c.deadline = d
	}
	return c
}

// end ends the context, as the call has returned.
func (c *callContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.stop != nil {
		c.stop()
	}
}

// make returns the context of the standard library.
func (c *callContext) make() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole != nil {
		return c.whole
	}
	if c.grace == 0 {
		c.whole, c.stop = context.WithDeadline(c.Context, c.deadline)
	} else {
		c.whole, c.stop = withGrace(c.Context, time.Until(c.deadline), c.grace)
	}
	if c.over {
		c.stop()
	}
	return c.whole
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} { return c.make().Done() }

// Err implements context.Context. Whatever may have ended the context has it made: only that knows since when.
func (c *callContext) Err() error {
	c.mu.Lock()
	whole, over := c.whole, c.over
	c.mu.Unlock()
	if whole == nil && !over && c.Context.Err() == nil && time.Until(c.deadline) > 0 {
		return nil
	}
	return c.make().Err()
}

// Value implements context.Context.
func (c *callContext) Value(key any) any {
	c.mu.Lock()
	whole := c.whole
	c.mu.Unlock()
	if whole == nil {
		whole = c.Context
	}
	return whole.Value(key)
}
