package guardscheduler

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// The marks of an entry in the store, in seconds since 1970. Each spec has marks of its own, under
// its fingerprint: what one process writes for its spec never changes which ticks another spec
// owes.
const (
	// newestTick is the instant up to which the ticks of the spec need no care.
	newestTick = "newest tick "
	// sinceSpec is when the entry first had the spec. It is written once.
	sinceSpec = "since "
	// aliveSpec is an instant at which a process had the entry with the spec.
	aliveSpec = "alive "
)

const (
	// aliveInterval is how often a process renews the mark aliveSpec.
	aliveInterval = time.Minute
	// aliveFor is how long after the mark the process may have ended.
	aliveFor = aliveInterval + 2*longestSleep
	// mostSpecs is how many specs of an entry the store remembers.
	mostSpecs = 100
	// mostGaps is how many gaps it remembers.
	mostGaps = 1000
)

// A knownSpec is a line of the log of an entry's specs.
type knownSpec struct {
	Print    string `json:"print"`
	Spec     string `json:"spec"`
	Location string `json:"location"` // of the process
}

// A knownGap is a line of the log of the gaps: the spec had no ticks after one instant, and up to
// the other. They are in seconds since 1970.
type knownGap struct {
	Print string `json:"print"`
	After int64  `json:"after"`
	UpTo  int64  `json:"upTo"`
}

func (e *entry) ledgerName() string { return "asynq-schedule:" + e.id }

// gapsName is another name, because a log is bounded, and a spec must not be forgotten.
func (e *entry) gapsName() string { return e.ledgerName() + ":gaps" }

// mark reads a mark, or raises it. It is the zero time if there is none.
func (r *runner) mark(ctx context.Context, e *entry, name string, to int64) (time.Time, error) {
	was, err := r.ledger.Raise(ctx, e.ledgerName(), name, max(0, to))
	if err != nil || was == 0 {
		return time.Time{}, err
	}
	return time.Unix(was, 0), nil
}

// load reads from the store, once, which ticks the entry owes.
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

// find sets e.last to the newest tick that was handled, and e.owed to the ticks after it that the
// entry owes. A new spec begins when it was registered.
func (r *runner) find(ctx context.Context, e *entry) error {
	since, err := r.mark(ctx, e, sinceSpec+e.print, 0)
	if err != nil {
		return err
	}
	if since.IsZero() {
		if since, err = e.since, r.begin(ctx, e); err != nil {
			return err
		}
	}
	e.last = since
	if err := r.refresh(ctx, e); err != nil {
		return err
	}
	if !e.floor.IsZero() && !e.schedule.Next(e.last.In(r.location)).After(e.floor) {
		if err := r.skip(ctx, e, e.last, e.floor); err != nil {
			return err
		}
		if err := r.pass(ctx, e, e.floor); err != nil {
			return err
		}
	}
	e.owed, err = r.owedBeside(ctx, e, since)
	return err
}

// begin settles what the spec before this one owes, and writes that the entry has this spec from
// now on. If the process dies halfway, the next one begins again.
func (r *runner) begin(ctx context.Context, e *entry) error {
	if err := r.settlePrevious(ctx, e); err != nil {
		return err
	}
	record, err := json.Marshal(knownSpec{e.print, e.spec, r.location.String()})
	if err == nil {
		err = r.ledger.Append(ctx, e.ledgerName(), driver.Entry{At: max(0, e.since.UnixMilli()), Record: record}, mostSpecs)
	}
	if err == nil {
		_, err = r.mark(ctx, e, sinceSpec+e.print, e.since.Unix())
	}
	return err
}

// settlePrevious enqueues, or gives up, the ticks of the previous spec until this one. That spec
// was current while no process was up, and may never come back.
func (r *runner) settlePrevious(ctx context.Context, e *entry) error {
	others, err := r.otherSpecs(ctx, e)
	if err != nil || len(others) == 0 || !r.isOnlySpec(e) {
		return err
	}
	last := slices.MaxFunc(others, func(a, b *otherSpec) int { return a.since.Compare(b.since) })
	const century = 100 * 365 * 24 * time.Hour
	previous := &entry{
		spec: last.spec, schedule: last.schedule, id: e.id, task: e.task, opts: e.opts, print: last.print,
		owed: &owed{Schedule: last.schedule, after: e.since, upTo: e.since.Add(century)},
		last: newest(newest(last.since, last.handled), e.floor),
	}
	if err := r.serve(ctx, previous); err != nil {
		return err
	}
	return r.pass(ctx, previous, e.since)
}

// owedBeside returns the schedule less the ticks that processes with other specs of the entry have
// handled: a tick of two specs is one task. If the entry has had a newer spec after the last
// process with this one, this one has no ticks since then, but those within the start deadline.
func (r *runner) owedBeside(ctx context.Context, e *entry, since time.Time) (*owed, error) {
	o := &owed{Schedule: e.schedule}
	ended, err := r.mark(ctx, e, aliveSpec+e.print, 0)
	if err != nil {
		return nil, err
	}
	ended = newest(ended, e.last).Add(aliveFor)
	others, err := r.otherSpecs(ctx, e)
	if err != nil {
		return nil, err
	}
	o.others = others
	for _, other := range others {
		if !other.since.After(since) || !other.ended.After(ended) || !r.isOnlySpec(e) {
			continue
		}
		o.upTo = e.since.Add(-r.deadline)
		if after := newest(ended, other.since); o.after.IsZero() || after.Before(o.after) {
			o.after = after
		}
	}
	return o, nil
}

// otherSpecs reads the other specs that the entry has had, with their marks and gaps.
func (r *runner) otherSpecs(ctx context.Context, e *entry) ([]*otherSpec, error) {
	lines, err := r.ledger.Entries(ctx, e.ledgerName(), mostSpecs)
	if err != nil {
		return nil, err
	}
	var others []*otherSpec
	for _, line := range lines {
		other, ok := readSpec(line.Record)
		if !ok || other.print == e.print {
			continue
		}
		if err := r.readMarks(ctx, e, other); err != nil {
			return nil, err
		}
		others = append(others, other)
	}
	if others == nil {
		return nil, nil
	}
	lines, err = r.ledger.Entries(ctx, e.gapsName(), mostGaps)
	for _, line := range lines {
		var gap knownGap
		if json.Unmarshal(line.Record, &gap) != nil {
			continue
		}
		for _, other := range others {
			if other.print == gap.Print {
				other.gaps = append(other.gaps, gap)
			}
		}
	}
	return others, err
}

// readSpec returns nothing for a line that only another version of this package can read.
func readSpec(record []byte) (*otherSpec, bool) {
	var known knownSpec
	if json.Unmarshal(record, &known) != nil {
		return nil, false
	}
	schedule, err := parse(known.Spec)
	if err != nil {
		return nil, false
	}
	location, err := time.LoadLocation(known.Location)
	if err != nil {
		return nil, false
	}
	return &otherSpec{spec: known.Spec, schedule: located{schedule, location}, print: known.Print}, true
}

// readMarks reads the marks of another spec of the entry.
func (r *runner) readMarks(ctx context.Context, e *entry, other *otherSpec) error {
	for mark, at := range map[string]*time.Time{sinceSpec: &other.since, newestTick: &other.handled, aliveSpec: &other.ended} {
		var err error
		if *at, err = r.mark(ctx, e, mark+other.print, 0); err != nil {
			return err
		}
	}
	other.ended = newest(other.ended, newest(other.since, other.handled))
	return nil
}

func newest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// refresh moves e.last to the mark in the store.
func (r *runner) refresh(ctx context.Context, e *entry) error { return r.raise(ctx, e, time.Time{}) }

// raise moves the entry's mark to a tick.
func (r *runner) raise(ctx context.Context, e *entry, tick time.Time) error {
	was, err := r.mark(ctx, e, newestTick+e.print, tick.Unix())
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

// skip writes that the spec has no ticks in a gap.
func (r *runner) skip(ctx context.Context, e *entry, after, upTo time.Time) error {
	record, err := json.Marshal(knownGap{e.print, after.Unix(), upTo.Unix()})
	if err != nil {
		return err
	}
	return r.ledger.Append(ctx, e.gapsName(), driver.Entry{At: max(0, upTo.UnixMilli()), Record: record}, mostGaps)
}

// pass moves the mark and e.last to an instant whose ticks, and those before it, are none.
func (r *runner) pass(ctx context.Context, e *entry, at time.Time) error {
	if _, err := r.mark(ctx, e, newestTick+e.print, at.Unix()); err != nil {
		return err
	}
	e.last = newest(e.last, at)
	return nil
}

// settle is called when the ticks up to now are enqueued or given up. From then on, the entry owes
// all ticks of its spec. It also says, now and then, that a process has the entry.
func (r *runner) settle(ctx context.Context, e *entry, now time.Time) error {
	if !e.owed.all() {
		var err error
		if e.owed.hasGap() {
			err = r.skip(ctx, e, e.owed.after, e.owed.upTo)
		}
		if err == nil {
			err = r.pass(ctx, e, now)
		}
		if err != nil {
			r.reportOnce(e, now, err)
			return err
		}
		e.owed = &owed{Schedule: e.schedule}
	}
	if ago := now.Sub(e.alive); ago < 0 || ago >= aliveInterval {
		if _, err := r.mark(ctx, e, aliveSpec+e.print, now.Unix()); err == nil {
			e.alive = now
		}
	}
	return nil
}
