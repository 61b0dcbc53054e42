package ticks

import (
	"context"
	"encoding/json"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// The counters of a spec, in milliseconds since 1970. Its fingerprint follows.
const (
	// markOf is the instant up to which all ticks of the spec that count have an outcome.
	markOf = "mark "
	// firstOf is when the entry first had the spec.
	firstOf = "first "
)

// How many lines the logs of an entry have at most.
const (
	maxSpecs   = 100
	maxAhead   = 1000
	maxOmitted = 1000
)

// Marks are what the store keeps of the ticks of an entry, for each spec that it has or had by
// itself. A process moves the marks of its own spec, and those of an older one only past ticks that
// it has handled. So processes with an old and a new spec can start, end and crash in any order.
type Marks struct {
	Ledger driver.Ledger
	Name   string // of the entry
	Spec   Spec   // of this process
}

// A Spec is how a process has a schedule, in words that other processes understand.
type Spec struct {
	Print string `json:"print"`          // of Fingerprint
	Words string `json:"spec,omitempty"` // the user's
	Text  string `json:"text,omitempty"` // of Text
}

// SpecOf returns a schedule as a Spec. loc is the location that the schedule has.
func SpecOf(words string, s cron.Schedule, loc *time.Location) Spec {
	return Spec{Fingerprint(s, loc), words, Text(s, loc)}
}

// The logs of the specs of an entry, of the ticks of a spec that have an outcome while an older one
// has none, and of the times that are omitted.
func (m *Marks) specs() string                 { return m.Name + "@specs" }
func (m *Marks) ahead(print string) string     { return m.Name + "@ahead-" + print }
func (m *Marks) omissions(print string) string { return m.Name + "@omitted-" + print }

// Begin writes down that the entry has the spec from at on. If isNew is false, a process had it
// before, and that remains. It begins after all other specs that the entry has or had: a clock may
// have been ahead when one of them began, but not by so much that this was after trusted.
func (m *Marks) Begin(ctx context.Context, at, trusted time.Time) (isNew bool, err error) {
	first, err := m.Ledger.Raise(ctx, m.Name, firstOf+m.Spec.Print, 0)
	if err != nil {
		return false, err
	}
	isNew = first == 0
	if isNew {
		lines, err := driver.Entries(ctx, m.Ledger, m.specs(), maxSpecs)
		if err != nil {
			return false, err
		}
		first = milliseconds(at)
		for _, line := range lines {
			if line.At <= milliseconds(trusted) {
				first = max(first, line.At+1)
			}
		}
	}
	// The counter comes last: if this process dies before, the next one begins the spec. If the log
	// has the spec, it keeps it as it is.
	record, err := json.Marshal(m.Spec)
	if err == nil {
		err = m.Ledger.Append(ctx, m.specs(), driver.Entry{At: first, Record: record}, maxSpecs)
	}
	if err == nil && isNew {
		_, err = m.Ledger.Raise(ctx, m.Name, firstOf+m.Spec.Print, first)
	}
	return isNew, err
}

// Raise raises the mark of the spec, and returns what it was. It is zero if there was none.
func (m *Marks) Raise(ctx context.Context, to time.Time) (was time.Time, err error) {
	n, err := m.Ledger.Raise(ctx, m.Name, markOf+m.Spec.Print, milliseconds(to))
	return instant(n), err
}

// Ahead writes down that a tick after the mark has an outcome.
func (m *Marks) Ahead(ctx context.Context, tick time.Time) error {
	line := driver.Entry{At: milliseconds(tick), Record: []byte(tick.UTC().Format(time.RFC3339Nano))}
	return m.Ledger.Append(ctx, m.ahead(m.Spec.Print), line, maxAhead)
}

// Omit writes down that the spec has no ticks after one instant, up to another. s is told, too.
func (m *Marks) Omit(ctx context.Context, s *State, after, upTo time.Time) error {
	g := omitted{milliseconds(after), milliseconds(upTo)}
	record, err := json.Marshal(g)
	if err == nil {
		err = m.Ledger.Append(ctx, m.omissions(m.Spec.Print), driver.Entry{At: g.UpTo, Record: record}, maxOmitted)
	}
	if err == nil {
		s.omitted = append(s.omitted, g)
	}
	return err
}

// Trusted returns the newest instant that another clock may show now. deadline is how late a tick
// may start.
func Trusted(now time.Time, deadline time.Duration) time.Time {
	return now.Add(max(MaxSkew, deadline))
}

// MaxSkew is by how much clocks may differ whatever the start deadline is.
const MaxSkew = 5 * time.Second

// Read returns what the store knows of the spec, and of the others that the entry has or had. What
// others have marked after trusted is left out: their clock was wrong, and the ticks up to there
// may have yet to come.
func (m *Marks) Read(ctx context.Context, trusted time.Time) (own *State, others []*State, err error) {
	lines, err := driver.Entries(ctx, m.Ledger, m.specs(), maxSpecs)
	if err != nil {
		return nil, nil, err
	}
	own = &State{Spec: m.Spec}
	for _, line := range lines {
		s := &State{first: line.At}
		// Another version may have written the line.
		if json.Unmarshal(line.Record, &s.Spec) == nil && s.Print != "" && s.Print != m.Spec.Print {
			others = append(others, s)
		}
	}
	names, counters := []string{m.Name}, []string{firstOf + m.Spec.Print}
	var logs []string
	all := append([]*State{own}, others...)
	for _, s := range all {
		names, counters = append(names, m.Name), append(counters, markOf+s.Print)
		logs = append(logs, m.ahead(s.Print), m.omissions(s.Print))
	}
	numbers, err := m.Ledger.CountersOf(ctx, names, counters)
	if err != nil {
		return nil, nil, err
	}
	read, err := m.Ledger.EntriesOf(ctx, logs, max(maxAhead, maxOmitted))
	if err != nil {
		return nil, nil, err
	}
	own.first = numbers[0]
	for i, s := range all {
		s.Schedule, s.ahead = Parse(s.Text), map[int64]bool{}
		counts := func(at int64) bool { return s == own || at <= milliseconds(trusted) }
		if counts(numbers[1+i]) {
			s.mark = numbers[1+i]
		}
		for _, line := range read[2*i] {
			if counts(line.At) {
				s.ahead[line.At] = true
			}
		}
		for _, line := range read[2*i+1] {
			var g omitted
			if json.Unmarshal(line.Record, &g) == nil {
				s.omitted = append(s.omitted, g)
			}
		}
	}
	return own, others, nil
}

// milliseconds are those since 1970 that a counter has for an instant, and instant is the way back.
func milliseconds(at time.Time) int64 { return max(at.UnixMilli(), 0) }

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
