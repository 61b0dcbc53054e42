package guardcron

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// The store keeps, as counters in milliseconds, the newest tick that somebody has taken, and up to
// which one those that nobody has taken were seen to: a process may die between the two.
const (
	reached = "tick"
	settled = "settled"
)

// reach tells the store that a tick was taken, and sees to those before it that nobody has.
func (b *job) reach(ctx context.Context, tick time.Time) {
	if b.wrapped {
		return // its ticks are those of a period, and not of the schedule
	}
	taken, seen, err := b.counters(ctx, tick.UnixMilli())
	if err != nil || seen >= tick.UnixMilli() {
		return // of an error, the next tick learns
	}
	if seen == 0 {
		_ = b.raise(ctx, settled, tick)
		return
	}
	before := tick.Add(-time.Nanosecond)
	b.jobs.inBackground(func() {
		if passed := b.since(seen, before); len(passed) > 1 {
			b.catchUpInTurn(taken, before)
		} else {
			b.catchUp(passed, max(taken, seen), tick)
		}
	})
}

// counters raises the first counter, and returns what both were.
func (b *job) counters(ctx context.Context, tick int64) (taken, seen int64, err error) {
	taken, err = b.jobs.ledger.Raise(ctx, ledgerName(b.name), reached, tick)
	if err == nil {
		seen, err = b.jobs.ledger.Raise(ctx, ledgerName(b.name), settled, 0)
	}
	return taken, seen, err
}

func (b *job) raise(ctx context.Context, counter string, to time.Time) error {
	_, err := b.jobs.ledger.Raise(ctx, ledgerName(b.name), counter, to.UnixMilli())
	return err
}

// catchUpAtStart sees to ticks that nobody was up for.
func (b *job) catchUpAtStart() {
	now := b.now()
	taken, seen, err := b.counters(b.jobs.ctx, 0)
	if err != nil {
		return // the first tick will find them
	}
	if seen == 0 {
		// which is after a tick of this very millisecond
		_ = b.raise(b.jobs.ctx, settled, now.Add(time.Millisecond))
		return
	}
	b.catchUpInTurn(taken, now)
}

// since returns the ticks from seen up to to. That of seen is among them: the process that had it
// may have died, and nobody have gone on.
func (b *job) since(seen int64, to time.Time) []time.Time {
	return b.between(time.UnixMilli(seen-1), to)
}

// between returns the ticks after from, up to to: of very many, the newest.
func (b *job) between(from, to time.Time) []time.Time {
	loc := b.jobs.cron.Location()
	from, to = from.In(loc), to.In(loc)
	all := ticks.In(b.schedule, from, to)
	for more := all; len(more) == ticks.Most; { // which may have been all
		more = ticks.In(b.schedule, more[len(more)-1], to)
		all = append(all, more...)
		all = all[max(0, len(all)-ticks.Most):]
	}
	return all
}

// remembered is for how long after a tick it is certain that the marker of its run stands. One
// that shares its name with an earlier tick (WithLocalTicks) may have its marker from that.
func (b *job) remembered() time.Duration {
	if b.local {
		return b.window - mostRepeated
	}
	return b.window
}

// catchUpInTurn sees to the ticks up to to, when nobody else sees to such ticks: they would not
// come in order. taken is the newest tick that anybody had taken before.
func (b *job) catchUpInTurn(taken int64, to time.Time) {
	b.mu.Lock()
	waits := b.waits
	b.waits = true
	b.mu.Unlock()
	if waits {
		return // and what comes later is for the next tick
	}
	only, end, err := b.acquire(b.jobs.ctx, b.runKey()+"@catch-up", guard.Forever, guard.WithLabel(b.runKey()+"@catch-up "+b.jobs.who), b.jobs.guard.Adapter().Auxiliary())
	b.mu.Lock()
	b.waits = false
	b.mu.Unlock()
	if err != nil {
		return
	}
	defer end()
	defer func() { _ = only.Release(b.jobs.ctx) }() // it ends by itself otherwise
	_, seen, err := b.counters(b.jobs.ctx, 0)
	// the store has forgotten it meanwhile: nobody knows what was missed, and the next tick begins
	// anew
	if err != nil || seen == 0 {
		return
	}
	if passed := b.since(seen, to); len(passed) > 0 {
		b.catchUp(passed, max(taken, seen), passed[len(passed)-1])
	}
}

// catchUp sees to ticks that have passed, the oldest first: each that nobody else has is run if it
// is one of the newest that are to be, or can still be started in time, and reported as missed if
// not. One that somebody has is waited for beside: that may be a process which has died. At the
// end, the store is told that all ticks up to upTo have been seen to.
func (b *job) catchUp(passed []time.Time, taken int64, upTo time.Time) {
	begun := b.now()
	for i, tick := range passed {
		if i > 0 {
			_ = b.raise(b.jobs.ctx, settled, passed[i-1])
		}
		// The marker of one that was taken, or may have been since, may have gone: it would be run
		// again.
		if b.now().Sub(tick) >= b.remembered() && (tick.UnixMilli() <= taken || begun.Sub(tick) <= b.deadline) {
			continue
		}
		wanted := len(passed)-i <= int(b.settings.catchUp)
		do := func(ctx context.Context, tick time.Time, lease *guard.Lease, _ bool) {
			_ = b.raise(ctx, reached, tick)
			late := b.now().Sub(tick)
			if wanted || late <= b.deadline {
				// for which it may wait, as other ticks of the same job are due
				b.start(ctx, tick, lease, b.deadline)
				return
			}
			b.miss(ctx, tick, lease, late)
		}
		err := b.take(tick, 0, do)
		switch {
		case errors.Is(err, guard.ErrDone):
		case errors.Is(err, guard.ErrBusy):
			b.jobs.inBackground(func() { _ = b.watch(tick, 0, do) })
		case err != nil:
			return // the next tick finds the others
		}
	}
	_ = b.raise(b.jobs.ctx, settled, upTo)
}
