package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
)

const (
	// leaderPause is the shortest pause after a term, so that other processes can lead.
	leaderPause = time.Second
	// leaderMaxPause is the longest pause after errors in a row. A term that lasts longer ends the
	// row.
	leaderMaxPause = time.Minute
)

// Lead runs f while this process is the leader: of all processes that call Lead for the key, one at
// a time, for as long as it renews its lease. Lead campaigns again after each term. It returns
// what Candidate.Run returns, or the error of Guard.Candidate, which describes f and the options.
// It is for processes that need nothing else of a Candidate.
func (g *Guard) Lead(ctx context.Context, key string, f func(ctx context.Context) error, opts ...Option) error {
	c, err := g.Candidate(key, f, opts...)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// Run campaigns, and calls f while this process leads, until ctx ends, the Guard is closed, or f
// returns ErrStopLeading. It also campaigns while the store cannot be asked. Run returns after f
// has returned and the lease was released. The result is one of these:
//
//   - the error of ctx. What f returned last is inside, unless that was the error of ctx, and so is
//     ErrLost, if the lease was lost meanwhile
//   - ErrClosed, if the Guard was closed
//   - nil, if f returned ErrStopLeading. ErrLost, if the lease was lost before f returned that
//   - the error of f, if that wraps ErrStopLeading
//   - a *StoreError that asking again cannot help (StoreErrorKind.Permanent), unless this process
//     has led before. Later, Run campaigns again after a pause, except if the client was closed
//   - a *SettingError, if Run is running already, or if ctx already holds the key
//
// Ran says whether f ran. Other errors of f are not returned; hooks receive them (Hook.RunEnd). If
// f panics or ends its goroutine, the lease is released and the panic propagates.
func (c *Candidate) Run(ctx context.Context) error {
	if c.guard.holding(ctx, c.stored) != nil {
		return &SettingError{Setting: "ctx", Reason: fmt.Sprintf("must not hold the key %q already", c.key)}
	}
	if !c.running.CompareAndSwap(false, true) {
		return &SettingError{Setting: "Run", Reason: "must not be called while it is running"}
	}
	defer c.running.Store(false)
	g, led, failures := c.guard, false, 0
	for {
		t, err := c.campaign(ctx)
		led = led || t != nil
		if over, err := c.over(ctx, t, err, led); over {
			return err
		}
		failures = t.failures(failures, g.clock.Now())
		g.sleep(g.clock.Now()+c.pause(failures), nil, ctx.Done(), g.closing.Done())
	}
}

// campaign waits until this process leads, and calls the function. It returns its term, or nil if
// this process has not led, and the error of Do.
func (c *Candidate) campaign(ctx context.Context) (t *term, err error) {
	err = c.guard.Do(ctx, c.key, func(ctx context.Context) error {
		t = c.newTerm(ctx)
		defer c.watch(t)()
		t.err = c.f(t.ctx)
		t.early = t.ctx.Err() == nil
		return t.err
	}, c.opts...)
	return t, err
}

func (c *Candidate) newTerm(ctx context.Context) *term {
	t := &term{holder: leaseOf(ctx).holder, began: c.guard.clock.Now()}
	t.ended.Store(int64(clock.Never))
	t.ctx, t.end = context.WithCancelCause(ctx)
	return t
}

// watch makes t the term under way, and ends it when the Guard is closed: a leader's function would
// not return otherwise. The caller must call stop when the function has ended.
func (c *Candidate) watch(t *term) (stop func()) {
	ended := context.AfterFunc(t.ctx, func() { t.ended.Store(int64(c.guard.clock.Now())) })
	closed := context.AfterFunc(c.guard.closing, func() { t.end(&ClosedError{Key: c.key, ran: true}) })
	c.term.Store(t)
	return func() {
		c.term.Store(nil)
		closed()
		ended()
		t.end(ErrReleased)
	}
}

// over reports whether the candidacy is over after a campaign, and what Run returns then. t and err
// are the results of campaign. led means that the process has led at least once.
func (c *Candidate) over(ctx context.Context, t *term, err error, led bool) (over bool, _ error) {
	ended := func(err error) (bool, error) {
		if led {
			err = asFunctionError(err)
		}
		return true, err
	}
	var store *StoreError
	switch {
	case t != nil && errors.Is(t.err, ErrStopLeading):
		if t.err == ErrStopLeading && err == t.err { //nolint:errorlint // it wraps nothing
			err = nil
		}
		return true, err
	case hasEnded(ctx):
		return ended(c.contextEnded(ctx, t, err))
	case errors.Is(err, ErrClosed) && c.guard.isClosed():
		return ended(err)
	case t == nil && errors.As(err, &store) && store.Kind.Permanent():
		if !led || store.Kind == driver.KindClosed {
			return ended(err)
		}
	}
	return false, nil
}

func (c *Candidate) contextEnded(ctx context.Context, t *term, err error) error {
	ended := contextEnded(ctx, "lead", c.key)
	lost := errors.Is(err, ErrLost)
	if t == nil || err == nil || !lost && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return ended
	}
	return fmt.Errorf("%w; the last term: %w", ended, err)
}

// failures returns the number of campaigns in a row that have failed, including the one of t. The
// campaign ended at an instant. t may be nil. before is the number of earlier ones.
func (t *term) failures(before int, at time.Duration) int {
	switch {
	case t == nil:
		return before + 1
	case !t.early || t.err == nil: // the term was ended, or the function was content
		return 0
	case at-t.began > leaderMaxPause:
		return 1
	}
	return before + 1
}

// pause returns how long to wait before the next campaign: from 1 to 2 s after a term, and up to
// leaderMaxPause after failures.
func (c *Candidate) pause(failures int) time.Duration {
	return c.guard.jitter.Backoff(2*leaderPause, leaderMaxPause, failures+1)
}
