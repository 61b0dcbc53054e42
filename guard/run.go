package guard

import (
	"context"
	"time"
)

// do runs f under h and gives h back. ctx is the caller's.
func (h *hold) do(ctx context.Context, f func(context.Context) error) (err error) {
	var r run
	r.begin(h, &h.ctx, false, false)
	defer func() {
		r.stop()
		back := h.giveBack(ctx, ending{finished: r.returned && err == nil, run: r.ctx})
		if r.returned {
			err = h.result(ctx, err, back.err)
		}
		r.report(err)
		back.report()
	}()
	err = f(r.ctx)
	r.returned = true
	return err
}

// result returns what Do returns after f returned err and giving the lease back ended with released.
func (h *hold) result(ctx context.Context, err, released error) error {
	if lost, end := h.ended(); lost != nil || end != ErrReleased { //nolint:errorlint // which is never wrapped
		return h.overtaken(ctx, err)
	}
	if err == nil && h.marks() {
		return released // the marker may be missing
	}
	return err
}

// join runs f under h, which ctx holds already. The context of f ends with the lease, also where ctx was
// detached from it.
func (h *hold) join(ctx context.Context, f func(context.Context) error) (err error) {
	joined, end := context.WithCancelCause(ctx)
	defer end(ErrReleased)
	defer context.AfterFunc(&h.ctx, func() { end(context.Cause(&h.ctx)) })()

	return h.run(&leaseContext{Context: joined, hold: h}, f, true)
}

// run calls f with ctx, and tells the hooks. It does not give h back.
func (h *hold) run(ctx context.Context, f func(context.Context) error, joined bool) (err error) {
	var r run
	r.begin(h, ctx, joined, !joined)
	defer func() {
		r.stop()
		if lost, end := h.ended(); r.returned && (lost != nil || end != nil) {
			err = h.overtaken(ctx, err)
		}
		r.report(err)
	}()
	err = f(r.ctx)
	r.returned = true
	return err
}

// A run is one call of a function under a hold.
type run struct {
	hold     *hold
	ctx      context.Context // with what the hooks put in
	joined   bool
	ended    bool
	returned bool // f returned: it did not panic or end its goroutine
	start    time.Duration
	took     time.Duration
}

// begin tells the hooks that a run begins. A lone one is not that of Do: somebody else's marker may be left for it.
func (r *run) begin(h *hold, ctx context.Context, joined, lone bool) {
	*r = run{hold: h, ctx: ctx, joined: joined}
	if len(h.set.hooks) == 0 {
		return
	}
	r.start = h.guard.now()
	e := r.event(nil)
	r.ctx = hooks(h.set.hooks).start(ctx, &e, pickRunStart)
	if h.set.window > 0 || lone {
		r.ctx = h.labelled(r.ctx)
	}
}

// markerLabel is the key, in the context of a run, of what hooks add to the label of a done marker. They are asked when the run begins: no hook comes between
// its end and the release.
type markerLabel struct{}

// labelled returns ctx with what the hooks add to the label of a marker.
func (h *hold) labelled(ctx context.Context) context.Context {
	if more := hooks(h.set.hooks).label(ctx, h.set.label)[len(h.set.label):]; more != "" {
		return context.WithValue(ctx, markerLabel{}, more)
	}
	return ctx
}

func (r *run) stop() {
	r.ended = true
	if len(r.hold.set.hooks) > 0 {
		r.took = r.hold.guard.now() - r.start
	}
}

func (r *run) report(err error) {
	if len(r.hold.set.hooks) > 0 {
		e := r.event(err)
		hooks(r.hold.set.hooks).tell(r.ctx, &e, pickRunEnd)
	}
}

func (r *run) event(err error) Event {
	e := r.hold.event()
	e.Start, e.Duration = r.hold.guard.epoch.Add(r.start), r.took
	e.Joined, e.Aside = r.joined, false
	e.Aborted = r.ended && !r.returned
	e.Err = err
	return e
}
