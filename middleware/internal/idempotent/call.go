package idempotent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A Call is one call on its way through a middleware. The adapter sets Core and Transport, and
// calls Serve. The zero Outcome says that nothing is known yet.
type Call struct {
	idempotency.Outcome
	Run         idempotency.Run
	RunKey      string // as the KeyFunc has found it
	Core        *Core
	Transport   Transport
	Scope       string // whose call it is, or empty
	Key         string // in the store
	Fingerprint []byte // nil if there are none
	RetryAfter  time.Duration

	ran    bool
	claims *guard.Deferral // those without an answer, if the call can run without a lease; or nil
	left   Left
	probe  int64         // see breaker
	limit  time.Duration // of an attempt to acquire the lease; 0 if there is none
	queued bool          // it is counted as waiting
	skip   string        // why it was skipped, if no hook was notified of that
}

// Serve answers a call. ctx is the context of the call. The Outcome then is complete, also if the
// handler or a function of the user's panics.
func (c *Call) Serve(ctx context.Context) {
	c.Result, c.Aborted = idempotency.Refused, true
	t, s := c.Transport, c.Core.Settings
	result, err := t.Identify()
	c.Result, c.Err = result, says(false, err)
	switch {
	case result == idempotency.Untouched:
		t.Pass()
		c.Aborted = false
		return
	case result == "" && s.Shadow:
		c.shadow(ctx)
	case result == "":
		c.lead(ctx)
	}
	switch {
	case c.ran && s.Shadow: // the client has the answer
	case s.Shadow, c.Result == idempotency.Degraded:
		c.bare(ctx)
	case c.Result == idempotency.Ran && s.AfterRecord && c.isUnrecorded() && t.Discard():
		t.Refuse(NotRecorded, s.RetryAfter, c.Err)
	case c.Result == idempotency.Ran:
		t.Send()
	case c.Result == idempotency.Replayed:
		t.Replay()
	default:
		t.Refuse(c.Result, c.RetryAfter, c.Err)
	}
	c.Aborted = false
}

// bare runs the handler without a lease. What the store may have granted is released when it has
// ended.
func (c *Call) bare(ctx context.Context) {
	defer c.giveBack()
	c.Transport.Bare(c.Run.Begin(ctx, c.RunKey))
}

// OfKey returns the result of a call whose KeyFunc has returned key and err: it is empty if there
// is a key.
func (s *Settings) OfKey(key string, err error, required bool) (idempotency.Result, error) {
	invalid := (*idempotency.KeyError)(nil)
	switch {
	case errors.Is(err, idempotency.ErrUnguarded):
		return idempotency.Untouched, nil
	case !errors.Is(err, idempotency.ErrNoKey) && (err != nil || key != ""):
	case required:
		return idempotency.KeyMissing, err
	default:
		return idempotency.Untouched, nil
	}
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &invalid):
		return idempotency.KeyInvalid, err
	default:
		return idempotency.Refused, err
	}
}

// OfScope returns the result of a call whose scope and err WithScope has returned: it is empty if
// there is a scope.
func (s *Settings) OfScope(scope string, err error) (idempotency.Result, error) {
	switch {
	case errors.Is(err, idempotency.ErrUnguarded):
		return idempotency.Untouched, nil
	case err != nil:
		return idempotency.Refused, fmt.Errorf("%s: the scope: %w", s.Adapter.Package(), err)
	case scope == "":
		return idempotency.Refused, errors.New(s.Adapter.Package() + ": the scope is empty")
	}
	return "", nil
}

// Stored returns the key under which the store knows a call: a hash, so that the store does not
// show what clients send. A key belongs to its scope, and to the group or else to the place, which
// says what is called.
func (s *Settings) Stored(scope, key string, place ...string) string {
	kind := "once"
	if s.Mode == idempotency.Exclusive {
		kind = "exclusive" // has no records, and must not meet any
	}
	parts := make([]string, 0, 8) // on the stack
	if s.Group != "" {
		parts = append(parts, kind, scope, "group", s.Group, key)
	} else {
		parts = append(append(append(parts, kind, scope), place...), key)
	}
	sum := keys.Hash(parts...)
	return string(s.Adapter) + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// lead acquires the lease of the call, runs the handler under it, keeps what the run leaves, and
// releases the lease. Result then is Ran. Otherwise Result says why the handler did not run, and
// RetryAfter when to try again, if that helps.
func (c *Call) lead(ctx context.Context) {
	defer c.unqueue()
	c.Result = idempotency.Unavailable // if the store panics
	ask := c.attempt
	if c.Core.FailOpen {
		c.claims = c.Core.guard.Adapter().Defer()
		defer func() {
			if c.Result != idempotency.Degraded {
				c.giveBack()
			}
		}()
		ask = c.attemptBriefly
	}
	err := ask(ctx, c.Core.first)
	if c.Core.Wait > 0 && !c.ran && errors.Is(err, guard.ErrBusy) && c.Core.queue.enter(c.Scope, c.Key) {
		c.queued = true
		err = c.attempt(ctx, c.Core.waiting)
	}
	if c.ran {
		c.ended(err)
		return
	}
	if c.Core.Wait > 0 && !c.queued {
		c.noteSkip(err) // the first attempt was a probe
	}
	c.unqueue()
	c.judge(err)
}

// unqueue counts the call as one that does not wait.
func (c *Call) unqueue() {
	if c.queued {
		c.queued = false
		c.Core.queue.leave(c.Scope, c.Key)
	}
}

// attempt asks for the lease once, and runs the handler under it. The end of the call ends the
// waiting, but not the run.
func (c *Call) attempt(ctx context.Context, opts []guard.Option) error {
	wait := ctx
	if c.limit > 0 {
		var end context.CancelFunc
		wait, end = context.WithTimeoutCause(ctx, c.limit, errNoAnswer)
		defer end()
	}
	opts = c.options(opts)
	err := c.Core.guard.Do(wait, c.Key, func(leased context.Context) error {
		if wait.Err() != nil {
			return c.Core.left
		}
		c.unqueue()
		if c.claims != nil {
			c.Core.breaker.answered()
		}
		if c.Core.quota != nil {
			return c.Core.quota.handle(c, leased, ctx)
		}
		return c.handle(leased, ctx)
	}, opts...)
	if !c.ran && errors.Is(context.Cause(wait), errNoAnswer) && ctx.Err() == nil {
		err = c.noAnswer()
	}
	if c.claims != nil {
		c.Core.breaker.note(err, c.claims.Err(), c.limit == openPatience, c.probe)
		c.probe = 0
	}
	return err
}

// options adds to the options of a lease those of the call.
func (c *Call) options(opts []guard.Option) []guard.Option {
	opts = slices.Clip(opts)
	if c.claims != nil {
		opts = append(opts, c.claims.Option())
	}
	if name := c.name(); name != c.Core.Name {
		opts = append(opts, guard.WithName(name))
	}
	return opts
}

// name returns the kind of work.
func (c *Call) name() string {
	if c.Core.unnamed && keys.IsName(c.Route) {
		return c.Route
	}
	return c.Core.Name
}

// noteSkip notes for the report that the key was busy, if it was.
func (c *Call) noteSkip(err error) {
	var busy *guard.BusyError
	if errors.As(err, &busy) {
		c.skip = "busy"
	}
}

// judge notes why a call got no lease.
func (c *Call) judge(err error) {
	var busy *guard.BusyError
	var done *guard.DoneError
	var full *fullError
	switch {
	case errors.As(err, &full):
		c.refuse(idempotency.TooManyKeys, max(full.left, time.Second), err)
	case errors.As(err, &done):
		c.judgeRecord(done)
	case errors.As(err, &busy):
		c.Label = busy.Label
		c.refuse(idempotency.InFlight, c.Core.RetryAfter, nil)
		if busy.Left > 0 {
			c.RetryAfter = min(c.RetryAfter, busy.Left)
		}
	case isAway(err) && c.Core.FailOpen:
		c.refuse(idempotency.Degraded, 0, err)
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed):
		c.refuse(idempotency.Unavailable, c.Core.RetryAfter, err)
	default:
		c.refuse(idempotency.Canceled, c.Core.RetryAfter, err)
	}
}

func (c *Call) refuse(result idempotency.Result, retryAfter time.Duration, err error) {
	c.Result, c.RetryAfter, c.Err = result, retryAfter, says(result == idempotency.Degraded, err)
}

// handle runs the handler. leased is the lease's context, and call that of the call. The handler's
// ends after WithMaxHold, and with WithClientCancel also at the end of the call.
func (c *Call) handle(leased, call context.Context) error {
	lease, _ := guard.FromContext(leased)
	c.ran, c.Result, c.Fence = true, idempotency.Ran, lease.Fence()
	ctx, end := context.WithTimeout(c.Run.Begin(leased, c.RunKey), c.Core.MaxHold)
	defer end()
	if c.Core.ClientCancel {
		canceled, cancel := context.WithCancelCause(ctx)
		defer context.AfterFunc(call, func() { cancel(context.Cause(call)) })()
		ctx = canceled
	}
	c.left = c.Transport.Handle(ctx)
	switch {
	case c.left.Keep == idempotency.KeepNothing && c.left.Failed:
		return c.Core.failed
	case c.left.Keep == idempotency.KeepNothing:
		lease.DiscardMarker()
		return nil
	}
	return lease.SetRecord(c.record())
}

// ended notes how a run ended whose lease was released. err is what the Guard returned.
func (c *Call) ended(err error) {
	switch {
	case err == nil:
		c.Kept, c.Err = c.left.Keep, c.left.Err
	case err != c.Core.failed: //nolint:errorlint // inside another error, it is not everything
		c.Err = err
	}
}

// isUnrecorded reports whether something was to be kept of the run, and the store may not have it.
func (c *Call) isUnrecorded() bool {
	return c.ran && c.left.Keep != idempotency.KeepNothing && c.Kept == idempotency.KeepNothing
}

// Report completes the Outcome of the call that has ended, and notifies hooks and observers.
// misplaced is why the answer is not that of the handler, if that is the server's mistake.
func (c *Call) Report(ctx context.Context, start time.Time, misplaced error) {
	o := &c.Outcome
	o.Name, o.Shadow, o.Duration = c.name(), c.Core.Shadow, time.Since(start)
	refused := misplaced
	if o.Result == idempotency.Refused {
		refused = o.Err
	}
	c.Core.guard.Adapter().Report(ctx, guard.Outcome{
		Adapter: string(c.Core.Adapter), Result: string(o.Result), Name: o.Name, Start: start, Duration: o.Duration, Fence: o.Fence,
		Aborted: o.Aborted, Err: o.Err, Refused: refused, Skipped: c.skip, Label: o.Label,
	}, c.Core.Lease...)
	c.Core.Observe(ctx, *o)
}

// says returns err such that guard.Ran says of it whether the handler ran, or is to run.
func says(ran bool, err error) error {
	if err == nil || guard.Ran(err) == ran {
		return err
	}
	return &outcomeError{err, ran}
}

// An outcomeError is an error of a call whose handler did, or did not, run whatever the error
// itself says. A function of the user's, for example, knows nothing of the handler.
type outcomeError struct {
	err error
	ran bool
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }
func (e *outcomeError) Ran() bool     { return e.ran }
