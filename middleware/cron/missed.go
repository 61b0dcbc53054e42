package guardcron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// findMissed adds the ticks from before this process was up that have no outcome to the backlog.
func (b *job) findMissed(k known) error {
	var missed, previous ticks.Span
	born := b.bornAt()
	if b.isNew { // a process whose clock is behind may take these, and die in them
		missed = b.come(b.schedule, born.Add(-ticks.MaxSkew), born)
		previous = b.ofPrevious(k, born)
	} else {
		var err error
		if missed, err = b.unsettled(k, born); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addPending(missed, b.isNew)
	b.addPending(previous, true)
	for _, r := range k.running(time.Time{}) {
		b.addPending(ticks.Span{Ticks: []time.Time{r.Tick}}, true)
	}
	b.first = b.first && !slices.ContainsFunc(k.view, func(e entry) bool { return e.Result != "" })
	b.checked = true
	return nil
}

// ofPrevious returns the ticks of the spec that this one replaces that may still be started, and
// have no outcome. If a process has begun one and died in it, no other process may be left that
// knows of it.
func (b *job) ofPrevious(k known, born time.Time) ticks.Span {
	if len(k.others) == 0 {
		return ticks.Span{}
	}
	last := slices.MaxFunc(k.others, func(a, b *ticks.State) int { return a.First().Compare(b.First()) })
	others := slices.DeleteFunc(slices.Clone(k.others), func(s *ticks.State) bool { return s == last })
	schedule := ticks.Remaining{Schedule: last.Schedule, Own: last, Others: others}
	return b.come(schedule, ticks.Later(last.Mark(), born.Add(-b.deadline)), born)
}

// endRunsByHand ends the records of runs by hand that were lost with their process, if the job
// does not run now. With Allow it ends none: a run by hand then has no lease that shows whether it
// still runs.
func (b *job) endRunsByHand() error {
	v, err := entries(b.jobs.ctx, b.ledger, byHandName(b.name), b.readLines())
	runs := v.running(time.Time{})
	if err != nil || len(runs) == 0 || b.overlap == Allow {
		return err
	}
	own, err := b.acquire(b.jobs.ctx, b.runKey(), 0, guard.WithLimit(0), guard.WithLabel(b.runKey()+" look "+b.who), b.jobs.guard.Adapter().Auxiliary(), b.jobs.guard.Adapter().Probe())
	switch {
	case errors.Is(err, guard.ErrBusy):
		return nil
	case err != nil:
		return err
	}
	b.end(runs)
	_ = own.Release(b.jobs.ctx)
	return nil
}

// remembered returns how long after a tick the marker of its run certainly exists. A tick that
// shares its name with an earlier one (WithLocalTicks) may have the marker of that one.
func (b *job) remembered() time.Duration {
	if b.local {
		return b.memory - maxSetBack
	}
	return b.memory
}

// A looking is one pass over the backlog, the oldest tick first.
type looking struct {
	job   *job
	ctx   context.Context //nolint:containedctx // of the pass
	known known
	pause pause     // the last one of the job
	from  time.Time // when that began
	next  time.Time // when to look again

	why     string // why the ticks in reports were left out
	reports []*held
}

func (b *job) handleBacklog(ctx context.Context, k known) (next time.Time, err error) {
	b.recount(k)
	b.mu.Lock()
	var all []*pending
	for _, p := range b.pending {
		if !p.active {
			all = append(all, p)
		}
	}
	b.mu.Unlock()
	if len(all) == 0 {
		return time.Time{}, nil
	}
	slices.SortFunc(all, func(a, b *pending) int { return a.tick.Compare(b.tick) })
	n := 0 // of the ticks from there on that no process with another spec has run
	for _, o := range slices.Backward(all) {
		if !k.byOthers(o.tick) {
			n++
		}
		o.left = o.left || n > b.catchUp
	}
	all = slices.DeleteFunc(all, func(o *pending) bool {
		if !b.isOnRecord(k, o.tick) {
			return false
		}
		b.settle(o.tick)
		return true
	})
	l := &looking{job: b, ctx: ctx, known: k}
	if l.pause, err = lastPause(ctx, b.ledger, b.name); err != nil {
		return time.Time{}, err
	}
	from, err := b.ledger.Raise(ctx, ledgerName(b.name), pausedAt, 0)
	if err != nil {
		return time.Time{}, err
	}
	l.from = time.UnixMilli(from)
	for _, o := range all {
		b.mu.Lock()
		handles := !o.active && b.pending[o.tick.UnixMilli()] == o
		o.active = o.active || handles
		tick := *o
		b.mu.Unlock()
		if !handles {
			continue
		}
		if err := l.at(tick); err != nil {
			l.report()
			return time.Time{}, err
		}
	}
	l.report()
	return l.next, nil
}

// isOnRecord reports whether the store says that a tick has ended, and no process may run it again.
func (b *job) isOnRecord(k known, tick time.Time) bool {
	v := k.view
	if b.late(tick) > b.deadline {
		// A run without an end may be of another spec, whose ticks the mark says nothing of.
		return len(v.running(tick)) == 0 && (b.trusts(k) && k.own.Settled(tick) || ticks.Handled(tick, k.others)) || b.has(v, tick)
	}
	again := []Result{Lost}
	if b.rerun {
		again = append(again, Failed)
	}
	return b.has(v, tick) && !b.has(v, tick, again...) || b.has(v, tick, Ran)
}

// has is that of the view, for all ticks that share a name with the tick.
func (b *job) has(v view, tick time.Time, outcomes ...Result) bool {
	return v.has(tick, outcomes...) || b.local && v.has(b.namesake(tick), outcomes...)
}

// at handles one tick of the backlog. An error means that it and those after it remain there.
func (l *looking) at(o pending) error {
	b := l.job
	newest := !o.left
	paused := !b.at(o.tick).Before(l.from) && b.at(o.tick).Before(l.pause.to)
	inTime := func() bool { return b.late(o.tick) <= b.deadline }
	born := b.bornAt()
	quiet := true
	if !paused && !o.begun && (newest || inTime() && b.at(o.tick).After(born)) {
		quiet = b.awaitQuiet() // it runs after the ticks that are due
	}
	h, err := b.take(o.tick, 0)
	var busy *guard.BusyError
	var done *guard.DoneError
	switch {
	case err == nil:
	case errors.As(err, &done):
		b.writeFor(o.tick, done)
		b.settle(o.tick)
		return nil
	case errors.As(err, &busy): // by a process that runs it, or has died
		b.isDue(1)
		b.jobs.inBackground(func() {
			defer b.isDue(-1)
			b.await(o.tick, untilOver(busy), true, nil)
		})
		return nil
	default:
		b.putBack(o.tick)
		return err
	}
	runs := l.known.running(o.tick)
	begun := len(runs) > 0 || b.has(l.known.view, o.tick)
	b.end(runs)
	switch {
	case o.begun && !begun, b.late(o.tick) >= b.remembered() && begun:
		// No process has begun it yet, or how it ended is not known any more.
		h.release()
		if !inTime() {
			b.settle(o.tick)
			break
		}
		b.putBack(o.tick)
		l.again(o.tick)
	case paused:
		l.leaveOut(h, skippedPaused)
	case !quiet:
		l.leaveOut(h, skippedBusy)
	case inTime() && (begun || b.at(o.tick).After(born)):
		return l.run(h, b.deadline-b.late(o.tick))
	case newest && !o.begun:
		return l.run(h, b.deadline)
	case inTime(): // it was due before this process was up: another one may still take it
		h.release()
		b.putBack(o.tick)
		l.again(o.tick)
	default:
		l.leaveOut(h, skippedMissed)
	}
	return nil
}

// again sets when to look again: when a tick, and those after it, are too late to start. One
// record then covers them.
func (l *looking) again(tick time.Time) {
	l.next = l.job.at(tick).Add(l.job.deadline + time.Millisecond)
}

// run runs a tick that is caught up with.
func (l *looking) run(h *held, wait time.Duration) error {
	b := l.job
	l.report()
	h.old, h.wait = true, wait
	b.runTick(h)
	b.mu.Lock()
	_, stopped := b.pending[h.tick.UnixMilli()]
	b.mu.Unlock()
	if stopped {
		return errStopped
	}
	select {
	case <-time.After(oldPause):
	case <-b.leaving.Done():
		return errClosed
	}
	k, err := b.readKnown(l.ctx)
	if err == nil {
		l.known = k
	}
	return err
}

// awaitQuiet waits until the ticks that are due now have been run or left out. It returns false if
// there are such ticks for as long as an old one may wait.
func (b *job) awaitQuiet() bool {
	if b.overlap == Allow {
		return true
	}
	b.mu.Lock()
	if b.due > 0 && b.quiet == nil {
		b.quiet = make(chan struct{})
	}
	quiet := b.quiet
	b.mu.Unlock()
	if quiet == nil {
		return true
	}
	timer := time.NewTimer(b.deadline)
	defer timer.Stop()
	select {
	case <-quiet:
		return true
	case <-timer.C:
	case <-b.leaving.Done():
	}
	return false
}

// leaveOut keeps a tick that is not run, to report it with those that come right before it:
// a record of several covers all ticks from the first to the last. Its lease is held until then: if
// this process dies before, another one reports it. why is the word for it.
func (l *looking) leaveOut(h *held, why string) {
	if l.why != why || len(l.reports) > 0 && !l.job.follows(l.reports[len(l.reports)-1].tick, h.tick) {
		l.report()
	}
	l.why = why
	l.reports = append(l.reports, h)
}

// follows reports whether there is no tick between two.
func (b *job) follows(tick, next time.Time) bool {
	loc := b.jobs.cron.Location()
	return b.schedule.Next(tick.In(loc)).Equal(next.In(loc))
}

// report reports the ticks that were left out, in one record.
func (l *looking) report() {
	if len(l.reports) == 0 {
		return
	}
	b, reports := l.job, l.reports
	first, last := reports[0], reports[len(reports)-1]
	b.mu.Lock()
	before := b.more // they come before the first of the backlog
	b.mu.Unlock()
	now := b.now().UTC()
	r := Record{Tick: first.tick.UTC(), Result: Skipped, Who: b.who, Fence: last.lease.Fence(), Start: now, End: now}
	if n := len(reports) + before.Before; n > 1 {
		r.Until, r.Ticks = last.tick.UTC(), n
	}
	if before.Before > 0 {
		r.Tick = before.First.UTC()
	}
	late := b.late(last.tick).Round(time.Millisecond)
	switch {
	case l.why == skippedPaused:
		r.Reason = "the job was paused"
	case l.why == skippedBusy:
		r.Reason = "the job runs for later ticks"
	case r.Ticks > 0:
		r.Result, r.Reason = Missed, fmt.Sprintf("nobody has finished them, or been there to start them, until %v after the last one", late)
	default:
		r.Result, r.Reason = Missed, fmt.Sprintf("nobody has finished it, or been there to start it, until %v after it", late)
	}
	b.put(r, reports...)
	b.notify(r, l.why)
	l.reports = nil
	b.mu.Lock()
	if b.more.Before -= before.Before; b.more.Before == 0 {
		b.more = ticks.Span{}
	}
	b.mu.Unlock()
	ticks := make([]time.Time, len(reports))
	for i, h := range reports {
		h.complete()
		ticks[i] = h.tick
	}
	b.finish(ticks...)
}
