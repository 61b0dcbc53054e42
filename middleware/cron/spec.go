package guardcron

import (
	"encoding/json"
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
		return s, nil
	}
	s.first, s.has, s.ahead = e.At, ticks.Parse(s.Text), map[int64]bool{}
	for counter, is := range map[string]*int64{sinceSpec: &s.since, replacedSpec: &s.replaced, newestTick: &s.newest} {
		if *is, err = b.raise(counter+s.Fingerprint, time.Time{}); err != nil {
			return s, err
		}
	}
	entries, err := b.jobs.ledger.Entries(b.jobs.ctx, b.aheadName(s.Fingerprint), maxAhead)
	s.last = s.newest
	for _, e := range entries {
		s.ahead[e.At] = true
		s.last = max(s.last, e.At)
	}
	return s, err
}

// readSpecs returns the job's spec, and the other ones that it has or had. If isNew, no process has
// had the spec before this one.
func (b *job) readSpecs(born time.Time) (own spec, others []spec, isNew bool, err error) {
	since, err := b.raise(sinceSpec+b.fingerprint, time.Time{})
	if err != nil {
		return own, nil, false, err
	}
	if isNew = since == 0; isNew {
		since = max(born.UnixMilli(), 0)
	}
	record, err := json.Marshal(spec{Fingerprint: b.fingerprint, Text: ticks.Text(b.schedule, b.location)})
	if err != nil {
		return own, nil, false, err
	}
	// The counter comes last: if this process dies before, the next one begins anew.
	if err := b.jobs.ledger.Append(b.jobs.ctx, specsName(b.name), driver.Entry{At: since, Record: record}, maxSpecs); err != nil {
		return own, nil, false, err
	}
	if isNew {
		_, err := b.raise(sinceSpec+b.fingerprint, born)
		return own, nil, true, err
	}
	entries, err := b.jobs.ledger.Entries(b.jobs.ctx, specsName(b.name), maxSpecs)
	if err == nil {
		own, err = b.readSpec(driver.Entry{At: since, Record: record})
	}
	for _, e := range entries {
		s, err := b.readSpec(e)
		switch {
		case err != nil:
			return own, nil, false, err
		case s.Fingerprint == b.fingerprint:
			own.first = s.first
		case s.Fingerprint != "":
			others = append(others, s)
		}
	}
	return own, others, false, err
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

// unsettled returns the ticks of the spec from before born that may have no outcome. If isNew, no
// process has had the spec before.
func (b *job) unsettled(born time.Time) (gaps []gap, isNew bool, err error) {
	own, others, isNew, err := b.readSpecs(born)
	if err != nil || isNew {
		return nil, isNew, err
	}
	come := func(from, to int64) gap {
		return b.comeBut(time.UnixMilli(max(from, own.newest)), time.UnixMilli(to), func(t time.Time) bool {
			for _, o := range others {
				if o.hasOutcome(t) {
					return true
				}
			}
			return t.UnixMilli() <= own.newest // with jitter, it starts later
		})
	}
	gaps = append(gaps, come(own.first, own.replaced))
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
			return nil, false, err
		}
		if _, err := b.raise(sinceSpec+b.fingerprint, born); err != nil {
			return nil, false, err
		}
	}
	b.mu.Lock()
	b.marked, b.ahead = time.UnixMilli(own.newest), own.ahead
	b.mu.Unlock()
	return append(gaps, come(max(own.since, own.replaced), to)), false, nil
}
