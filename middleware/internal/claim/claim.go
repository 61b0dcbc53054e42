package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// An Attempt is one message that has come, until it is answered.
type Attempt struct {
	core *Core
	ctx  context.Context // the message's

	Key      string         // that the KeyFunc returned
	Identity string         // the key of the lease of the run, or "": it needs none
	Marker   string         // the key of the lease that leaves the done marker, or ""
	lease    []guard.Option // of this message

	Started bool  // the handler was called
	Err     error // what it returned
	Outcome guard.Outcome
}

// Begin returns the Attempt of a message that has come. The name of its Outcome is that of
// guard.WithName, or else the kind of work.
func (c *Core) Begin(ctx context.Context, kind string) Attempt {
	o := guard.Outcome{Adapter: c.Adapter, Name: c.name, Start: time.Now()}
	if o.Name == "" {
		o.Name = c.nameOf(kind)
	}
	return Attempt{core: c, ctx: ctx, Outcome: o}
}

// A Source finds what the leases of a message need. Its functions may be nil.
type Source struct {
	Kind string                 // of work
	Of   func() string          // names the message in errors
	Key  func() (string, error) // never an empty key
	// Once finds the key of the marker, if Settings.Apart.
	Once  func() (string, error)
	Lease func() []guard.Option
}

// Identify sets the keys and the options of the leases.
func (a *Attempt) Identify(s Source) error {
	a.End(Refused, nil) // if a function panics
	err := a.find(s)
	if err != nil {
		return fmt.Errorf("guard%s: key of %s: %w", a.core.Adapter, s.Of(), err)
	}
	if a.Identity == "" || s.Lease == nil {
		return nil
	}
	a.lease = s.Lease()
	adapter := a.core.Guard.Adapter()
	if err := adapter.CheckOptions(a.core.unusedOfOne(), a.lease...); err != nil {
		return fmt.Errorf("guard%s: lease of %s: %w", a.core.Adapter, s.Of(), err)
	}
	if name := adapter.Name(append(slices.Clip(a.core.opts), a.lease...)...); name != "" {
		a.Outcome.Name = name
	}
	return nil
}

// find sets the keys.
func (a *Attempt) find(s Source) (err error) {
	c := a.core
	marked := c.Once > 0 && !c.Apart
	if a.Key, a.Identity, err = c.find(s.Kind, s.Key, marked); err != nil {
		return err
	}
	if marked {
		a.Marker = a.Identity
	}
	if !c.Apart {
		return nil
	}
	key, marker, err := c.find(s.Kind, s.Once, true)
	if a.Marker = marker; a.Identity == "" { // one lease does for both
		a.Key, a.Identity = key, marker
	}
	return err
}

// find returns the key of a function and the one under which the store knows it, or neither.
func (c *Core) find(kind string, f func() (string, error), marker bool) (key, identity string, err error) {
	key, err = f()
	if c.Unguarded != nil && errors.Is(err, c.Unguarded) {
		return "", "", nil
	}
	return key, c.identity(kind, key, marker), err
}

// A Result is how an attempt has ended, for guard.Outcome.Result. The results are few and fixed, so
// they can be a label of a metric.
type Result string

// The results of a Verdict.
const (
	// Ran means that the handler ran under the lease. Err is nil, what the handler returned, a
	// *guard.LostError, or a *guard.MarkerError.
	Ran Result = "ran"
	// Done means that the work was done before. Verdict.Record is what that run has kept.
	Done Result = "done"
	// Busy means that the key is still busy after the wait.
	Busy Result = "busy"
	// Unavailable means that the store was unavailable, or the Guard closed.
	Unavailable Result = "unavailable"
	// Canceled means that the message's context has ended before its handler began.
	Canceled Result = "canceled"
	// Refused means that the claim cannot work, however often it is tried.
	Refused Result = "refused"
)

// Further results, which an adapter makes of a Verdict.
const (
	Unguarded Result = "unguarded" // the handler ran without a lease
	Skipped   Result = "skipped"   // the message has ended, because its key was busy
	Postponed Result = "postponed" // the message comes back, because its key was busy
)

// A Verdict is how a claim ended.
type Verdict struct {
	Result Result
	Record []byte // of Done
	Err    error
	// OfRepeat means that only the key of the marker is busy: a repeat holds it, and may be about
	// to find the other key busy.
	OfRepeat bool
}

// Do runs f under the leases of the keys of Identify, if it gets them within wait. ctx is that of
// the message, or one that is derived from it and may end earlier. marker is the
// lease that leaves the done marker, or nil. If f returns an error, panics or ends its goroutine,
// or if the lease is lost, there is no marker. The Outcome then says how the claim ended.
func (a *Attempt) Do(ctx context.Context, wait time.Duration, f func(ctx context.Context, marker *guard.Lease) error) Verdict {
	ran := false
	run := func(ctx context.Context, marker *guard.Lease) error {
		ran = true
		a.End(Ran, nil)
		a.Outcome.Fence, a.Outcome.Skipped, a.Outcome.Label = guard.Fence(ctx), "", ""
		return f(ctx, marker)
	}
	c, until := a.core, time.Now().Add(wait)
	var err error
	switch a.Marker {
	case "":
		err = c.Guard.Do(ctx, a.Identity, func(ctx context.Context) error { return run(ctx, nil) }, a.options(wait)...)
	case a.Identity:
		err = c.Guard.Do(ctx, a.Identity, func(ctx context.Context) error {
			marker, _ := guard.FromContext(ctx)
			return run(ctx, marker)
		}, c.marked(a.options(wait))...)
	default:
		err = c.Guard.Do(ctx, a.Marker, func(ctx context.Context) error {
			marker, _ := guard.FromContext(ctx)
			// the rest of the wait, which is for both leases
			return c.Guard.Do(ctx, a.Identity, func(ctx context.Context) error { return run(ctx, marker) }, a.options(time.Until(until))...)
		}, append(c.marked(a.options(wait)), c.Guard.Adapter().Auxiliary())...)
	}
	return a.judge(ran, err)
}

// options returns the options of a lease of the message.
func (a *Attempt) options(wait time.Duration) []guard.Option {
	opts := append(slices.Clip(a.core.opts), guard.WithName(a.Outcome.Name))
	if wait > 0 {
		opts = append(opts, guard.WithWait(wait))
	}
	return append(opts, a.lease...)
}

// judge says what the error of Guard.Do means.
func (a *Attempt) judge(ran bool, err error) Verdict {
	v := Verdict{Result: Refused, Err: err}
	if !ran {
		a.Outcome.Label, a.Outcome.Skipped = "", ""
	}
	var done *guard.DoneError
	var busy *guard.BusyError
	switch {
	case ran:
		v.Result = Ran
	case errors.As(err, &done):
		v.Result, v.Record, v.Err = Done, done.Record, nil
		a.Outcome.Label = done.Label
		if a.Marker != a.Identity {
			a.Outcome.Skipped = "done" // hooks do not learn it from an auxiliary lease
		}
	case errors.As(err, &busy):
		v.Result, v.OfRepeat = Busy, a.Marker != a.Identity && busy.Key == a.Marker
		a.Outcome.Label, a.Outcome.Skipped = busy.Label, "busy"
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed), errors.Is(err, guard.ErrLost):
		// the marker's lease can be lost while the message waits for the other one
		v.Result = Unavailable
	}
	if !ran && v.Result != Done && a.ctx.Err() != nil {
		v.Result = Canceled
		a.Outcome.Skipped = ""
	}
	a.End(v.Result, v.Err)
	return v
}

// Call calls the handler.
func (a *Attempt) Call(f func() error) error {
	a.Started, a.Outcome.Aborted = true, true
	a.Err = f()
	a.Outcome.Aborted = false
	return a.Err
}

// Unguarded calls the handler of a message that needs no lease.
func (a *Attempt) Unguarded(f func() error) error {
	a.End(Unguarded, nil)
	a.Outcome.Err = a.Call(f)
	return a.Err
}

// End sets the result of the Outcome.
func (a *Attempt) End(r Result, err error) { a.Outcome.Result, a.Outcome.Err = string(r), err }

// Refuse ends the attempt because of a mistake in the setup.
func (a *Attempt) Refuse(err error) error {
	a.End(Refused, err)
	a.Outcome.Skipped, a.Outcome.Refused = "", err
	return err
}

// Report notifies hooks. It is called when the message has its answer, or a function has panicked.
func (a *Attempt) Report() {
	a.Outcome.Duration = time.Since(a.Outcome.Start)
	a.core.Guard.Adapter().Report(a.ctx, a.Outcome, append(slices.Clip(a.core.Lease), a.lease...)...)
}
