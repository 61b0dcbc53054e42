package guard_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A lateContext has a deadline, and ends when the test says so: the timers of a context may be
// late. What is derived from it ends in the order in which it was derived.
type lateContext struct {
	context.Context
	deadline time.Time
	done     chan struct{}

	mu    sync.Mutex
	err   error
	after []func()
}

func newLateContext(parent context.Context, deadline time.Time) *lateContext {
	return &lateContext{Context: parent, deadline: deadline, done: make(chan struct{})}
}

func (c *lateContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *lateContext) Done() <-chan struct{}       { return c.done }

func (c *lateContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc is how package context has derived contexts end.
func (c *lateContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = append(c.after, f)
	return func() bool { return false }
}

// end ends the context, and waits after each of the contexts that are derived from it.
func (c *lateContext) end() {
	c.mu.Lock()
	c.err = context.DeadlineExceeded
	after := c.after
	c.mu.Unlock()
	for _, f := range after {
		f()
		synctest.Wait()
	}
	close(c.done)
}

// underLeases are the ways to get a context that ends with a lease.
var underLeases = map[string]func(g *guard.Guard, ctx context.Context, f func(context.Context) error) error{
	"Do": func(g *guard.Guard, ctx context.Context, f func(context.Context) error) error {
		return g.Do(ctx, "a", f)
	},
	"DoAll": func(g *guard.Guard, ctx context.Context, f func(context.Context) error) error {
		return g.DoAll(ctx, []string{"a", "b"}, f)
	},
	"Acquire": func(g *guard.Guard, ctx context.Context, f func(context.Context) error) error {
		l, err := g.Acquire(ctx, "a")
		if err != nil {
			return err
		}
		defer func() { _ = l.Release(ctx) }()
		return f(l.Context())
	},
	"AcquireAll": func(g *guard.Guard, ctx context.Context, f func(context.Context) error) error {
		l, err := g.AcquireAll(ctx, []string{"a", "b"})
		if err != nil {
			return err
		}
		defer func() { _ = l.Release(ctx) }()
		return f(l.Context())
	},
}

// A deadline of the caller is a deadline to what runs under the lease, and no cancellation. It
// does not matter which of the contexts that end with it is the first.
func TestDeadline_isNoCancellation(t *testing.T) {
	const timeout = time.Second
	ends := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	contexts := map[string]func(outer context.Context) (inner context.Context){
		"the caller's": nil,
		"that of an outer run": func(outer context.Context) context.Context {
			deadline, _ := outer.Deadline()
			late := newLateContext(outer, deadline)
			time.AfterFunc(timeout+time.Millisecond, late.end)
			return late
		},
		"one that was detached": context.WithoutCancel,
	}
	for from, inner := range contexts {
		for name, under := range underLeases {
			inBubbleOf(t, name+", "+from, func(t *testing.T, g *guard.Guard, _ *testStore) {
				var cause error
				f := func(ctx context.Context) error {
					defer func() { cause = context.Cause(ctx) }()
					return ends(ctx)
				}
				var err error
				if inner == nil {
					late := newLateContext(t.Context(), time.Now().Add(timeout))
					time.AfterFunc(timeout, late.end)
					err = under(g, late, f)
				} else {
					outer := within(t, timeout)
					err = g.Do(outer, "a", func(ctx context.Context) error { return under(g, inner(ctx), f) })
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, cause, context.DeadlineExceeded)
			})
		}
	}
}

// A call whose deadline passes while the store is asked returns that error, also if the store, or
// the connection to it, notices the deadline first. The caller's context has ended then, although
// its timer may be late by some milliseconds on a busy machine.
func TestDeadline_isNoErrorOfTheStore(t *testing.T) {
	for how, answer := range map[string]func(ctx context.Context) error{
		"the request ends with its context": frozen,
		"the connection has the deadline": func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			time.Sleep(time.Until(deadline))
			return guardtest.Fail(driver.KindTimeout)
		},
	} {
		for name, under := range underLeases {
			inBubbleOf(t, name+", "+how, func(t *testing.T, g *guard.Guard, store *testStore) {
				store.OnAcquire = func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
					return driver.Answer{}, answer(ctx)
				}
				for _, delay := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
					late := newLateContext(t.Context(), time.Now().Add(time.Second))
					time.AfterFunc(time.Second+delay, late.end)
					err := under(g, late, nothing)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.NotErrorIs(t, err, guard.ErrStore)
					require.True(t, delay > 10*time.Millisecond || late.Err() != nil, "the call waits for a timer that is a little late")
				}
				time.Sleep(time.Second)
			})
		}
	}
}
