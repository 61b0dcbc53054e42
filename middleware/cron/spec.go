package guardcron

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// The counters of a spec, in milliseconds since 1970. The fingerprint of its schedule follows.
const (
	// sinceSpec is when the job got the spec last.
	sinceSpec = "since "
	// replacedSpec is when the job had got another spec instead, the last time before that. The
	// ticks in between do not count.
	replacedSpec = "replaced "
	// maxSpecs is how many specs of a job are known.
	maxSpecs = 8
	// replacedAfter is the least time for which an older spec is back before it replaces a newer
	// one. Until then, its processes may be those that a deployment has not replaced yet.
	replacedAfter = 24 * time.Hour
)

// specsName is the log of the specs of a job, by when the job got them first.
func specsName(job string) string { return ledgerName(job) + "@specs" }

// A spec is one that a job has or had.
type spec struct {
	Fingerprint string `json:"fingerprint"`
	Text        string `json:"text,omitempty"` // of ticks.Text

	first, since, replaced, newest int64
	ahead                          map[int64]bool // ticks after the newest that have an outcome
	last                           int64          // the newest tick of all that have one
	has                            func(tick time.Time) bool
}

// readSpec returns what the store knows of a spec.
func (b *job) readSpec(e driver.Entry) (s spec, err error) {
	if json.Unmarshal(e.Record, &s) != nil {
		return s, nil //nolint:nilerr // another version's
	}
	s.first, s.has, s.ahead = e.At, ticks.Parse(s.Text), map[int64]bool{}
	for counter, is := range map[string]*int64{sinceSpec: &s.since, replacedSpec: &s.replaced, newestTick: &s.newest} {
		if *is, err = b.raise(counter+s.Fingerprint, time.Time{}); err != nil {
			return s, err
		}
	}
	entries, err := b.ledger.Entries(b.jobs.ctx, b.aheadName(s.Fingerprint), maxAhead)
	s.last = s.newest
	for _, e := range entries {
		s.ahead[e.At] = true
		s.last = max(s.last, e.At)
	}
	return s, err
}

// beginSpec writes down that the job has the spec from born on, if no process has had it before. It
// waits for no other process: this one may end soon.
func (b *job) beginSpec(born time.Time) error {
	since, err := b.raise(sinceSpec+b.fingerprint, time.Time{})
	if err != nil {
		return err
	}
	isNew := since == 0
	if isNew {
		since = max(born.UnixMilli(), 0)
	}
	// The counter comes last: if this process dies before, the next one begins the spec. If the log
	// has the spec, it keeps it as it is.
	record, err := json.Marshal(spec{Fingerprint: b.fingerprint, Text: ticks.Text(b.schedule, b.location)})
	if err == nil {
		err = b.ledger.Append(b.jobs.ctx, specsName(b.name), driver.Entry{At: since, Record: record}, maxSpecs)
	}
	if err == nil && isNew {
		_, err = b.raise(sinceSpec+b.fingerprint, born)
	}
	if err == nil {
		b.begun, b.isNew = true, isNew
	}
	return err
}

// readSpecs returns the job's spec, and the other ones that it has or had.
func (b *job) readSpecs() (own spec, others []spec, err error) {
	entries, err := b.ledger.Entries(b.jobs.ctx, specsName(b.name), maxSpecs)
	if err != nil {
		return own, nil, err
	}
	for _, e := range entries {
		s, err := b.readSpec(e)
		switch {
		case err != nil:
			return own, nil, err
		case s.Fingerprint == b.fingerprint:
			own = s
		case s.Fingerprint != "":
			others = append(others, s)
		}
	}
	if own.Fingerprint == "" { // the job has had so many others since
		own, err = b.readSpec(driver.Entry{Record: []byte(`{"fingerprint":"` + b.fingerprint + `"}`)})
		own.first = own.since
	}
	return own, others, err
}

// replacedBy returns since when the job has another spec instead, in milliseconds since 1970, or 0
// if it was this one that came last. A newer spec replaces it at once, and an older one that is
// back does if it alone had ticks for long.
func (s spec) replacedBy(o spec, long time.Duration) int64 {
	from := max(s.since, s.last)
	if o.first > s.since {
		if max(o.first, o.last) > s.last {
			return max(o.first, from)
		}
		return 0
	}
	if back := max(o.since, from); time.Duration(o.last-back)*time.Millisecond > long {
		return back
	}
	return 0
}

// hasOutcome reports whether a tick of another spec has its outcome as one of this.
func (s spec) hasOutcome(tick time.Time) bool {
	at := tick.UnixMilli()
	known := at > s.first && at <= s.newest && (at <= s.replaced || at > s.since)
	return s.ahead[at] || known && s.has(tick)
}

// unsettled returns the ticks of the spec from before born that may have no outcome.
func (b *job) unsettled(born time.Time) ([]gap, error) {
	own, others, err := b.readSpecs()
	if err != nil || own.since == 0 { // the store has just lost what it had
		return nil, err
	}
	come := func(from, to int64) gap {
		return b.comeBut(time.UnixMilli(max(from, own.newest)), time.UnixMilli(to), func(t time.Time) bool {
			// With jitter, the newest tick starts later than it is.
			return t.UnixMilli() <= own.newest || slices.ContainsFunc(others, func(o spec) bool { return o.hasOutcome(t) })
		})
	}
	replaced := int64(0)
	for _, o := range others {
		if at := own.replacedBy(o, max(replacedAfter, b.window)); at > 0 && (replaced == 0 || at < replaced) {
			replaced = at
		}
	}
	to := born.UnixMilli()
	// If nothing that can no longer start was due meanwhile, it goes on as if it had been up.
	if replaced > 0 && len(come(replaced, born.Add(-b.deadline).UnixMilli()).ticks) > 0 {
		to = replaced
		if _, err := b.raise(replacedSpec+b.fingerprint, time.UnixMilli(replaced)); err != nil {
			return nil, err
		}
		if _, err := b.raise(sinceSpec+b.fingerprint, born); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	b.marked, b.afterMark = time.UnixMilli(own.newest), own.ahead
	b.mu.Unlock()
	return []gap{come(own.first, own.replaced), come(max(own.since, own.replaced), to)}, nil
}
