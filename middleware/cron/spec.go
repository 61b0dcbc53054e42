package guardcron

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// replacedAfter is the least time for which an older spec is back before it replaces a newer one.
// Until then, its processes may be those that a deployment has not replaced yet.
const replacedAfter = 24 * time.Hour

// beginSpec writes down that the job has the spec from born on, if no process has had it before. It
// waits for no other process: this one may end soon.
func (b *job) beginSpec(born time.Time) error {
	isNew, err := b.marks.Begin(context.WithoutCancel(b.jobs.ctx), born, ticks.Trusted(b.now(), b.deadline))
	if err == nil {
		b.begun, b.isNew = true, isNew
	}
	return err
}

// unsettled returns the ticks of the spec from before born that may have no outcome.
func (b *job) unsettled(k known, born time.Time) (ticks.Span, error) {
	if k.own.First().IsZero() { // the store has just lost what it had
		return ticks.Span{}, nil
	}
	replaced := k.own.Replaced(k.others, max(replacedAfter, b.memory))
	// If nothing that can no longer start was due meanwhile, it goes on as if it had been up.
	due := time.Time{}
	if !replaced.IsZero() {
		due = b.startAfter(b.remaining(k), ticks.Later(replaced, k.own.Mark()))
	}
	if !due.IsZero() && !due.After(born.Add(-b.deadline)) {
		if err := b.marks.Omit(b.jobs.ctx, k.own, replaced, born); err != nil {
			return ticks.Span{}, err
		}
	}
	b.mu.Lock()
	b.marked = k.own.Mark()
	b.mu.Unlock()
	return b.come(b.remaining(k), k.own.Mark(), born), nil
}

// remaining returns the schedule less what does not count, or has an outcome as a tick of another
// spec.
func (b *job) remaining(k known) ticks.Remaining {
	return ticks.Remaining{Schedule: b.schedule, Own: k.own, Others: k.others}
}

// trusts reports whether the mark is one to go by: it is not that of a clock that was far ahead.
func (b *job) trusts(k known) bool {
	return !k.own.Mark().After(ticks.Trusted(b.now(), b.deadline))
}

// recount leaves those out of the ticks before the pending ones that others have handled.
func (b *job) recount(k known) {
	b.mu.Lock()
	more := b.more
	b.mu.Unlock()
	if more.Before == 0 || !b.trusts(k) || k.own.Mark().Before(more.First) {
		return
	}
	left := b.come(b.remaining(k), k.own.Mark(), b.at(more.Last))
	n := left.Before + len(left.Ticks)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.more.Before != more.Before { // more have come
		return
	}
	if b.more = (ticks.Span{}); n > 0 {
		b.more = ticks.Span{Before: n, First: left.First, Last: more.Last}
	}
}
