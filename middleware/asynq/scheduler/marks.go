package guardscheduler

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// neverBack is how long an older spec that is back has to be alone to replace a newer one: a newer
// spec has its ticks whatever processes with an older one do.
const neverBack = time.Duration(math.MaxInt64)

// load reads from the store, once, which ticks of the entry remain.
func (r *runner) load(ctx context.Context, e *entry) error {
	if e.loaded {
		return nil
	}
	if err := r.find(ctx, e); err != nil {
		r.reportOnce(e, e.since, err)
		return err
	}
	if e.last.After(e.since) {
		e.last = e.since // the mark of a clock that is ahead
	}
	e.loaded = true
	return nil
}

// find sets e.last to the newest tick that was handled, and e.remaining to the ticks after it that
// remain. A new spec begins when it was registered. If another one has replaced it, it has no
// ticks since then, but those within the start deadline.
func (r *runner) find(ctx context.Context, e *entry) error {
	if err := r.read(ctx, e); err != nil {
		return err
	}
	own, isNew := e.remaining.Own, e.remaining.Own.First().IsZero()
	if isNew {
		if err := r.settlePrevious(ctx, e); err != nil {
			return err
		}
	}
	if _, err := e.marks.Begin(ctx, e.since, ticks.Trusted(r.now(), r.deadline)); err != nil {
		return err
	}
	if e.last = own.Mark(); isNew {
		e.last = e.since
	}
	if err := r.skip(ctx, e, e.last, e.floor); err != nil || isNew || !r.isOnlySpec(e) {
		return err
	}
	if replaced := own.Replaced(e.remaining.Others, neverBack); !replaced.IsZero() {
		return r.skip(ctx, e, replaced, e.since.Add(-r.deadline))
	}
	return nil
}

// read sets what remains of the entry by its marks and those of its other specs.
func (r *runner) read(ctx context.Context, e *entry) error {
	own, others, err := e.marks.Read(ctx, ticks.Trusted(r.now(), r.deadline))
	if err == nil {
		e.remaining.Own, e.remaining.Others = own, others
	}
	return err
}

// skip leaves out the ticks after one instant, up to another.
func (r *runner) skip(ctx context.Context, e *entry, after, upTo time.Time) error {
	if next := e.remaining.Next(after.In(r.location)); next.IsZero() || next.After(upTo) {
		return nil
	}
	return e.marks.Omit(ctx, e.remaining.Own, after, upTo)
}

// settlePrevious enqueues, or gives up, the ticks of the previous spec until this one. That spec
// was current while no process was up, and may never come back.
func (r *runner) settlePrevious(ctx context.Context, e *entry) error {
	others := e.remaining.Others
	if len(others) == 0 || !r.isOnlySpec(e) {
		return nil
	}
	last := slices.MaxFunc(others, func(a, b *ticks.State) int { return a.First().Compare(b.First()) })
	previous := &entry{
		spec: last.Words, schedule: last.Schedule, id: e.id, task: e.task, opts: e.opts,
		marks:     ticks.Marks{Ledger: r.ledger, Name: e.marks.Name, Spec: last.Spec},
		remaining: ticks.Remaining{Schedule: last.Schedule, Until: e.since},
		last:      ticks.Later(last.Mark(), e.floor),
	}
	if err := r.read(ctx, previous); err != nil {
		return err
	}
	return r.serve(ctx, previous)
}

// raise moves the entry's mark to a tick, and e.last to what the store has as the mark.
func (r *runner) raise(ctx context.Context, e *entry, tick time.Time) error {
	was, err := e.marks.Raise(ctx, tick)
	if err != nil {
		return err
	}
	for _, t := range []time.Time{tick, was} {
		if t.After(e.last) && !t.After(r.now()) {
			e.last = t
		}
	}
	return nil
}
