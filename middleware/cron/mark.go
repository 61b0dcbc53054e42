package guardcron

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// finish is called by the goroutine that handles ticks when this process has given them their
// outcome.
func (b *job) finish(ticks ...time.Time) {
	for _, tick := range ticks {
		b.settle(tick)
	}
	b.mu.Lock()
	b.ended = append(b.ended, ticks...)
	b.mu.Unlock()
	b.markAgain()
}

// markAgain is mark. If that fails, it is tried again when the store answers.
func (b *job) markAgain() {
	if b.mark() != nil {
		b.lookAgain()
	}
}

// mark writes down up to which tick all have an outcome, if this process has ended one since. The
// ticks that it has ended after that one go into a log.
func (b *job) mark() error {
	// No other process looks for what is missing before the mark.
	if err := b.writeAgain(); err != nil {
		return err
	}
	b.mu.Lock()
	if !b.checked { // older ticks may be without an outcome
		b.mu.Unlock()
		return nil
	}
	ended, upTo := b.ended, b.settledUpTo()
	b.ended = nil
	for _, tick := range ended {
		b.newest = ticks.Later(b.newest, tick)
	}
	raises := b.newest.After(b.marked) && upTo.After(b.marked)
	b.mu.Unlock()
	for i, tick := range ended {
		if !tick.After(upTo) {
			continue
		}
		if err := b.marks.Ahead(context.WithoutCancel(b.jobs.ctx), tick); err != nil {
			b.mu.Lock()
			b.ended = append(b.ended, ended[i:]...)
			b.mu.Unlock()
			return err
		}
	}
	if !raises {
		return nil
	}
	if _, err := b.marks.Raise(context.WithoutCancel(b.jobs.ctx), upTo); err != nil {
		return err
	}
	b.mu.Lock()
	b.marked = ticks.Later(b.marked, upTo)
	b.mu.Unlock()
	return nil
}

// settledUpTo returns the instant up to which this process knows that all ticks have an outcome.
// b.mu is held.
func (b *job) settledUpTo() time.Time {
	upTo := b.settled
	before := func(tick time.Time) {
		if tick = tick.Add(-time.Millisecond); tick.Before(upTo) {
			upTo = tick
		}
	}
	for _, p := range b.pending {
		if !p.begun { // the log has the others
			before(p.tick)
		}
	}
	if b.more.Before > 0 {
		before(b.more.First)
	}
	return upTo
}
