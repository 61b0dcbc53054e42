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
	joined   bool            // the holder belongs to another call
	others   []*holder       // the holders of the other keys of DoAll
	caller   context.Context // the caller's own, if it is not that of the function; or nil
	returned bool            // the function returned: it did not panic or end its goroutine
	ended    bool            // a lease of the run ended before the function returned
	start    time.Duration
	took     time.Duration
}

// runAndRelease calls f, and releases the holder.
func (r *run) runAndRelease(f func(context.Context) error) (err error) {
	var rel release
	defer rel.report() // also if the release panics, or a hook ends the goroutine
	defer func() {
		if len(r.hooks) > 0 {
			r.report(err)
		}
	}()
	defer func() {
		r.stop()
		rel.begin(r.holder, releaseOptions{complete: r.returned && err == nil, run: r.ctx})
		rel.send(r.caller)
		if r.returned {
			r.ended, err = r.resultOf(&rel, err)
		}
	}()
	if len(r.hooks) > 0 {
		r.begin(r.holder.set.window > 0)
	}
	err = f(r.ctx)
	r.returned = true
	return err
}

// resultOf returns what Do returns after its function has returned err and the lease was released.
// ended means that the lease ended while the function ran.
func (r *run) resultOf(rel *release, err error) (ended bool, _ error) {
	h := r.holder
	//nolint:errorlint // the cause is never wrapped
	if lost, end := h.ended(); lost != nil || end != ErrReleased {
		return true, h.endedError(r.caller, err, true)
	}
	if rel.err != nil && rel.marks {
		return false, &MarkerError{Key: h.key, Err: rel.err}
	}
	return false, asFunctionError(err)
}

// run calls f with ctx. It does not release the holder.
func (r *run) run(ctx context.Context, f func(context.Context) error) (err error) {
	r.ctx = ctx
	if r.caller == nil {
		r.caller = ctx
	}
	defer func() {
		r.stop()
		if r.returned {
			r.ended, err = r.result(err)
		}
		if len(r.hooks) > 0 {
			r.report(err)
		}
	}()
	if len(r.hooks) > 0 {
		r.begin(!r.joined)
	}
	err = f(r.ctx)
	r.returned = true
	return err
}

// result returns what the run returns after its function has returned err, and whether that is
// because a lease ended meanwhile.
func (r *run) result(err error) (ended bool, _ error) {
	for _, h := range append(r.others, r.holder) {
		if lost, end := h.ended(); lost != nil || end != nil {
			return true, h.endedError(r.caller, err, true)
		}
	}
	return false, asFunctionError(err)
}

// begin calls the hooks. If a done marker may follow, they are asked now what to add to its label:
// no hook comes between the end of the run and the release.
func (r *run) begin(marks bool) {
	r.start = r.holder.guard.clock.Now()
	r.reportStart()
	if !marks {
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

func (r *run) stop() {
	if len(r.hooks) > 0 {
		r.took = r.holder.guard.clock.Now() - r.start
	}
}

// asFunctionError returns the error of a function that ran. If the function has itself returned
// the error of another call that did not run, it is wrapped, so that Ran is right about this call.
func asFunctionError(err error) error {
	if err == nil || Ran(err) {
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
