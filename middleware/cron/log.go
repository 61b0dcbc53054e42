package guardcron

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// An entry is a line of a job's log in the store. The log forgets the oldest lines, and those of
// other specs are between them: see mark for what no process has handled.
type entry struct {
	Record

	Schedule string `json:"schedule,omitempty"` // the fingerprint of the job's schedule
	Old      bool   `json:"old,omitempty"`      // the tick is caught up with
}

// at orders records: the newest tick first.
func (r Record) at() time.Time {
	switch {
	case !r.Until.IsZero():
		return r.Until
	case !r.Tick.IsZero():
		return r.Tick
	}
	return r.Start
}

// run tells a run, or what has happened to ticks, from all others of the job.
func (r Record) run() any {
	type run struct {
		tick, start time.Time
		fence       uint64
	}
	return run{r.Tick.UTC(), r.Start.UTC(), r.Fence}
}

// rank orders the records of one run: the highest one counts. A run that has lost its lease can be
// on record as Ran before its process knows that.
func (r Record) rank() int64 {
	switch r.Result {
	case Running:
		return 0
	case Lost:
		return 2
	default:
		return 1
	}
}

// is reports whether the record is of a tick, alone or with others.
func (r Record) is(tick time.Time) bool {
	return r.Tick.Equal(tick) || !r.Until.IsZero() && !tick.Before(r.Tick) && !tick.After(r.Until)
}

// write adds an entry to the log. If that fails, it returns false, and it is tried again when the
// store answers.
func (b *job) write(e entry) bool {
	if b.append(e) == nil {
		return true
	}
	b.mu.Lock()
	b.unwritten = append(b.unwritten, &e)
	b.unwritten = b.unwritten[max(0, len(b.unwritten)-2*b.history):]
	b.mu.Unlock()
	b.lookAgain()
	return false
}

func (b *job) append(e entry) error {
	// The log forgets the beginning of a run first: a run without an end would seem lost.
	log, at := ledgerName(b.name), e.at().UnixMilli()+e.rank()
	if e.Tick.IsZero() {
		log = byHandName(b.name)
	}
	return b.ledger.Append(context.WithoutCancel(b.jobs.ctx), log, driver.Entry{At: max(at, 0), Record: b.text(e)}, 2*b.history)
}

// text returns an entry as the log has it.
func (b *job) text(e entry) []byte {
	const longest = 4 << 10
	e.Reason = e.Reason[:min(len(e.Reason), longest)]
	e.Schedule = cmp.Or(e.Schedule, b.marks.Spec.Print)
	text, err := json.Marshal(e)
	if err != nil { // an instant after the year 9999
		return []byte("{}")
	}
	return text
}

// writeAgain writes what could not be written before.
func (b *job) writeAgain() error {
	for {
		b.mu.Lock()
		var e *entry
		if len(b.unwritten) > 0 {
			e = b.unwritten[0]
		}
		b.mu.Unlock()
		if e == nil {
			return nil
		}
		if err := b.append(*e); err != nil {
			return err
		}
		b.mu.Lock()
		b.unwritten = slices.DeleteFunc(b.unwritten, func(o *entry) bool { return o == e })
		b.mu.Unlock()
	}
}

// put puts an outcome on record, before the leases of its ticks become markers: if this process
// died between the two, no other one would report it. If it cannot be written down, the markers
// have it.
func (b *job) put(r Record, of ...*held) {
	e := entry{Record: r}
	if b.write(e) {
		return
	}
	for _, h := range of {
		_ = h.lease.SetRecord(b.text(e))
	}
}

// writeFor writes down what the marker of a tick has. With Allow, a job can set other records.
func (b *job) writeFor(tick time.Time, done *guard.DoneError) {
	var e entry
	if json.Unmarshal(done.Record, &e) == nil && e.Result != "" && e.is(tick) {
		b.write(e)
	}
}

// A view is the content of the log when it was read, the newest entries first.
type view []entry

// entries reads a log. It leaves out what other programs have written into it.
func entries(ctx context.Context, ledger driver.Ledger, log string, n int) (view, error) {
	lines, err := driver.Entries(ctx, ledger, log, n)
	return parse(lines), err
}

// parse returns what is in lines of a log: of each run only the record that counts.
func parse(lines []driver.Entry) view {
	var v view
	known := map[any]bool{}
	for _, l := range lines {
		var e entry
		if json.Unmarshal(l.Record, &e) == nil && e.Result != "" && !known[e.run()] {
			known[e.run()] = true
			v = append(v, e)
		}
	}
	return v
}

// readLog reads the log of the job.
func (b *job) readLog(ctx context.Context) (view, error) {
	v, err := entries(ctx, b.ledger, ledgerName(b.name), b.readLines())
	return b.ownOf(v), err
}

// readLines is how many lines of a log are read.
func (b *job) readLines() int { return min(2*b.history, driver.MaxEntries) }

// ownOf leaves out records of several ticks of another spec: these are of its ticks only.
func (b *job) ownOf(v view) view {
	return slices.DeleteFunc(v, func(e entry) bool { return !e.Until.IsZero() && e.Schedule != b.marks.Spec.Print })
}

// A known is what the store says of the ticks of the job.
type known struct {
	view

	own    *ticks.State
	others []*ticks.State // of other specs
}

func (b *job) readKnown(ctx context.Context) (k known, err error) {
	if k.view, err = b.readLog(ctx); err == nil {
		k.own, k.others, err = b.marks.Read(ctx, ticks.Trusted(b.now(), b.deadline))
	}
	return k, err
}

// byOthers reports whether processes with other specs have given a tick its outcome.
func (k known) byOthers(tick time.Time) bool {
	return ticks.Handled(tick, k.others) || slices.ContainsFunc(k.view, func(e entry) bool {
		return e.Result != Running && e.Schedule != k.own.Print && e.is(tick)
	})
}

// running returns the runs whose end is not in the log: those of a tick, or all if tick is zero.
func (v view) running(tick time.Time) []entry {
	var found []entry
	for _, e := range v {
		if e.Result == Running && (tick.IsZero() || e.is(tick)) {
			found = append(found, e)
		}
	}
	return found
}

// has reports whether the log has one of the outcomes for the tick, or any outcome if none is
// given.
func (v view) has(tick time.Time, outcomes ...Result) bool {
	return slices.ContainsFunc(v, func(e entry) bool {
		return e.Result != Running && e.is(tick) && (len(outcomes) == 0 || slices.Contains(outcomes, e.Result))
	})
}

// abandoned ends the records of runs of a tick that another process has begun and not ended. It
// returns true if the tick must not run again, although its marker is missing. The caller has the
// lease of the tick.
func (b *job) abandoned(h *held) (over bool) {
	k, err := b.readKnown(h.lease.Context())
	if err != nil {
		return false
	}
	b.end(k.running(h.tick))
	return b.isOnRecord(k, h.tick)
}

// end records that runs were lost with their process.
func (b *job) end(runs []entry) {
	for _, r := range runs {
		r.Result, r.End, r.Reason = Lost, b.now().UTC(), "its process has not finished it"
		b.write(r)
	}
}

// notify reports an outcome to observers and hooks.
func (b *job) notify(r Record, skipped string) {
	r.Job = b.name
	b.report(r, "", skipped)
	for _, f := range b.observed {
		func() {
			defer func() { _ = recover() }() // observers decide nothing
			f(r)
		}()
	}
}

// report reports the outcome of a tick to the Guard's hooks. label is that of the run that was
// found instead.
func (b *job) report(r Record, label, skipped string) {
	b.jobs.guard.Adapter().Report(context.WithoutCancel(b.jobs.ctx), guard.Outcome{
		Adapter: "cron", Result: string(r.Result), Skipped: skipped, Name: b.kind, Start: r.Start, Duration: r.End.Sub(r.Start), Fence: r.Fence, Label: label,
	}, b.lease...)
}

// recordBeginning writes down that a run has begun, in a second: one that has ended by then needs
// no such record. Before the first run of a job it is written at once. If this process dies in it,
// others know that there was one. So is a run that begins late: the next ticks may, too. The caller
// calls ended when the run has ended.
func (b *job) recordBeginning(r entry) (ended func()) {
	b.mu.Lock()
	first := b.first
	b.first = false
	b.mu.Unlock()
	if !r.Tick.IsZero() && (first || r.Start.Sub(b.at(r.Tick)) > longRun) {
		b.write(r)
		return func() {}
	}
	written := make(chan struct{})
	timer := time.AfterFunc(longRun, func() {
		defer close(written)
		b.write(r)
	})
	return func() {
		if !timer.Stop() {
			<-written
		}
	}
}

// longRun is how long a run takes before it is recorded as Running.
const longRun = time.Second

// Why a tick did not run here, in a word.
const (
	skippedDone   = "done"
	skippedMissed = "missed"
	skippedPaused = "paused"
	skippedBusy   = "busy"
)

func ledgerName(job string) string { return "cron:" + job }

// byHandName is the log of the runs by hand, which must not push out what is known of ticks.
func byHandName(job string) string { return ledgerName(job) + "@by-hand" }
