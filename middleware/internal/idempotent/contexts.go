package idempotent

import (
	"context"
	"sync"
	"time"
)

// The contexts of a call make one of the standard library, with its timer and its ties to other
// contexts, only when Done is called: most calls are answered before. Until then, Err looks at
// their parts. For a context that has ended, the whole one is made, so that context.Cause works.

// A tether is the context under which a call acquires its lease: the call's, until it is cut
// loose.
type tether struct {
	context.Context // the call's

	mu      sync.Mutex
	granted bool
	loose   bool
	snapped bool
	over    bool
	whole   context.Context // nil until it is made
	end     context.CancelCauseFunc
	stop    func() bool // lets the end of the call no longer end it
}

// cut notes that the lease was granted, and returns false if the tether has ended already. A loose
// tether does not end with the call any more.
func (t *tether) cut(loose bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Context.Err() != nil || t.snapped {
		return false
	}
	t.granted, t.loose = true, loose
	if loose && t.stop != nil {
		t.stop()
	}
	return true
}

// snap ends the tether with a cause, unless the lease was granted.
func (t *tether) snap(cause error) {
	t.make()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.granted {
		t.snapped = true
		t.end(cause)
	}
}

// hasSnapped reports whether the tether has ended by snap.
func (t *tether) hasSnapped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapped
}

// close ends the tether.
func (t *tether) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.whole != nil {
		t.stop()
		t.end(nil)
	}
}

func (t *tether) make() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.whole != nil {
		return t.whole
	}
	t.whole, t.end = context.WithCancelCause(context.WithoutCancel(t.Context))
	t.stop = func() bool { return true }
	switch {
	case t.over:
		t.end(nil)
	case t.loose:
	case t.Context.Err() != nil:
		t.end(context.Cause(t.Context))
	default:
		t.stop = context.AfterFunc(t.Context, func() { t.end(context.Cause(t.Context)) })
	}
	return t.whole
}

// Deadline implements context.Context.
func (t *tether) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (t *tether) Done() <-chan struct{} { return t.make().Done() }

// Err implements context.Context.
func (t *tether) Err() error {
	t.mu.Lock()
	going := t.whole == nil && !t.over && (t.loose || t.Context.Err() == nil)
	t.mu.Unlock()
	if going {
		return nil
	}
	return t.make().Err()
}

// Value implements context.Context.
func (t *tether) Value(key any) any {
	t.mu.Lock()
	from := t.whole
	t.mu.Unlock()
	if from == nil {
		from = t.Context
	}
	return from.Value(key)
}

// A runContext is the context of a handler: the lease's, with a deadline, and the run in it.
type runContext struct {
	context.Context // the lease's
	run             *Run
	adapter         Adapter
	deadline        time.Time

	mu    sync.Mutex
	over  bool
	whole context.Context // nil until it is made
	end   context.CancelFunc
}

// close ends the context.
func (c *runContext) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.end != nil {
		c.end()
	}
}

func (c *runContext) make() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole == nil {
		c.whole, c.end = context.WithDeadline(c.Context, c.deadline)
		if c.over {
			c.end()
		}
	}
	return c.whole
}

// Deadline implements context.Context.
func (c *runContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} { return c.make().Done() }

// Err implements context.Context.
func (c *runContext) Err() error {
	c.mu.Lock()
	going := c.whole == nil && !c.over && c.Context.Err() == nil && time.Until(c.deadline) > 0
	c.mu.Unlock()
	if going {
		return nil
	}
	return c.make().Err()
}

// Value implements context.Context.
func (c *runContext) Value(key any) any {
	if k, ok := key.(runKey); ok && Adapter(k) == c.adapter {
		return c.run
	}
	c.mu.Lock()
	from := c.whole
	c.mu.Unlock()
	if from == nil {
		from = c.Context
	}
	return from.Value(key)
}
