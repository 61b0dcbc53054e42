package guard

import (
	"context"
	"errors"
	"time"
)

// A run is one call of a function under a holder.
type run struct {
	holder   *holder
	hooks    hooks
	ctx      context.Context // the context of the function, with the values of the hooks
	caller   context.Context // the caller's own
	releases bool            // the run releases the holder in the end
	joined   bool            // the holder belongs to another call
	others   []*holder       // the holders of the other keys of DoAll
	state    runState
	start    time.Duration
	took     time.Duration
}

// A runState is how a run has ended.
type runState uint8

const (
	runAborted    runState = iota // the function panicked, or ended its goroutine
	runReturned                   // the function returned
	runLeaseEnded                 // it returned, and a lease of the run had ended before
)

// run calls f, and releases the holder if the run is to do so.
func (r *run) run(f func(context.Context) error) (err error) {
	var own release
	if len(r.hooks) > 0 {
		defer own.report() // also if the release panics, or a hook ends the goroutine
		defer func() { r.report(err) }()
	}
	defer func() { err = r.end(&own, err) }()
	if len(r.hooks) > 0 {
		r.begin()
	}
	err = f(r.ctx)
	r.state = runReturned
	return err
}

// end ends the run, whose function has returned err unless it did not return. It returns the result
// of the call.
func (r *run) end(own *release, err error) error {
	h, over := r.holder, error(nil)
	if len(r.hooks) > 0 {
		r.took = h.guard.clock.Now() - r.start
	}
	if r.releases {
		over = ErrReleased
		own.begin(h, releaseOptions{complete: r.state == runReturned && err == nil, run: r.ctx})
		own.send(r.caller)
	}
	if r.state == runAborted {
		return err
	}
	for _, other := range r.others {
		if lost, cause := other.ended(); lost != nil || cause != nil {
			h = other
			break
		}
	}
	//nolint:errorlint // the cause is never wrapped
	if lost, cause := h.ended(); lost != nil || cause != over {
		r.state = runLeaseEnded
		return h.endedError(r.caller, err, true)
	}
	if own.err != nil && own.marks {
		return &MarkerError{Key: h.key, Err: own.err}
	}
	if err != nil {
		err = asFunctionError(err)
	}
	return err
}

// begin calls the hooks. If a done marker may follow, they are asked now what to add to its label:
// no hook comes between the end of the run and the release. A run that does not release its holder
// may be inside of one whose marker gets the label, as that of a tick.
func (r *run) begin() {
	r.start = r.holder.guard.clock.Now()
	r.reportStart()
	if r.joined || r.releases && r.holder.set.window == 0 {
		return
	}
	own := r.holder.set.label
	if more := r.hooks.label(r.ctx, own)[len(own):]; more != "" {
		r.ctx = context.WithValue(r.ctx, markerLabel{}, more)
	}
}

// markerLabel is the key, in the context of a run, of what hooks add to the label of a done
// marker.
type markerLabel struct{}

// asFunctionError returns the error of a function that ran. If the function has itself returned
// the error of another call that did not run, it is wrapped, so that Ran is right about this call.
func asFunctionError(err error) error {
	if Ran(err) {
		return err
	}
	return &functionError{err}
}

type functionError struct{ err error }

func (e *functionError) Error() string { return e.err.Error() }
func (e *functionError) Unwrap() error { return e.err }
func (e *functionError) Ran() bool     { return true }

// Ran reports whether the function ran, by the error that Do returned. It is true for nil and for
// the function's own errors. All typed errors have a method of that name. Of an error of Acquire,
// it reports whether there was a lease, which is always false.
func Ran(err error) bool {
	var e interface{ Ran() bool }
	return !errors.As(err, &e) || e.Ran()
}

func (r *run) event() RunEvent {
	e := RunEvent{r.holder.event(r.start), r.joined}
	if r.joined || e.Purpose == PurposeAuxiliary {
		e.Purpose = PurposeRun
	}
	return e
}

// reportStart calls the hooks for the start of the run, and sets its context.
func (r *run) reportStart() {
	r.ctx = start(r.ctx, r.hooks, r.event(), func(h *Hook) func(context.Context, RunEvent) context.Context { return h.RunStart })
}

func (r *run) report(err error) {
	e := RunEndEvent{RunEvent: r.event(), Duration: r.took, Aborted: r.state == runAborted, LeaseEnded: r.state == runLeaseEnded, Err: err}
	r.hooks.call(func(h *Hook) { send(r.ctx, h.RunEnd, e) })
}
