package soak_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// A verdict is what the events of all processes come to.
type verdict struct {
	beliefs, kills, lost int
	overlaps             int // in which a loss made two believe, as leases cannot prevent
	longest              time.Duration
	writes               history.Writes
	runs, done           int // of what is to be done once: begun, and left done
	// after a loss, or after a run of which it is not known whether it had left its key done
	repeated int
	finished map[string]bool // what was done, by name
	wrong    []string
}

func (v *verdict) String() string {
	return fmt.Sprintf(`beliefs        %6d, %d of them lost
workers killed %6d
overlaps       %6d in windows that a loss has opened, the longest for %v
writes         %6d offered, %d stale ones refused, %d stale ones accepted
runs           %6d of what is to be done once, %d left done, %d repeated as that was lost or not known
wrong          %6d`,
		v.beliefs, v.lost, v.kills, v.overlaps, v.longest.Round(time.Millisecond), v.writes.Offered, v.writes.Refused, v.writes.StaleAccepted,
		v.runs, v.done, v.repeated, len(v.wrong))
}

func (v *verdict) accuse(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
}

// judge looks at the events of a soak in which stores have forgotten things at those times.
func judge(events []history.Event, losses []loss) *verdict {
	v := &verdict{finished: map[string]bool{}}
	events = endBeliefs(events)
	for _, e := range history.Beliefs(events) {
		v.beliefs++
		if e.Reason != "released" && e.Reason != "cancelled" && e.Reason != "" {
			v.lost++
		}
	}
	v.kills = len(history.Kills(events))
	requested := requests(events)
	for _, o := range history.Overlaps(events) {
		older, newer := o.One, o.Two
		if older.Fence > newer.Fence { // the first grant may have been received last
			older, newer = newer, older
		}
		from := older.Call
		if at, ok := requested[older.Claim]; ok {
			from = at
		}
		if !between(losses, o.Key, from, newer.Call) {
			v.accuse("overlap without a loss: %v", o)
			continue
		}
		v.overlaps++
		v.longest = max(v.longest, o.For)
	}
	v.writes = history.JudgeWrites(events)
	v.wrong = append(v.wrong, v.writes.Faults...)
	v.judgeRuns(events, losses)
	return v
}

// requests returns when the requests were sent by which claims were granted: from then on, and
// before anybody believes in it, a lease can be lost.
func requests(events []history.Event) map[string]int64 {
	sent := map[string]int64{}
	for _, e := range events {
		if at, ok := sent[e.Claim]; e.Kind == history.Acquire && e.Outcome == history.OK && (!ok || e.Call < at) {
			sent[e.Claim] = e.Call
		}
	}
	return sent
}

// between reports whether a store has forgotten the key between two instants.
func between(losses []loss, key string, from, to int64) bool {
	return slices.ContainsFunc(losses, func(l loss) bool { return (l.key == "" || l.key == key) && l.to >= from && l.from <= to })
}

// endBeliefs ends the beliefs of processes that were killed at their deadlines, if these were
// before: Valid said no since then, whether or not somebody lived to write it down.
func endBeliefs(events []history.Event) []history.Event {
	proven := map[string]int64{}
	for _, e := range events {
		if (e.Kind == history.Acquire || e.Kind == history.Renew) && e.Outcome == history.OK {
			proven[e.Claim] = max(proven[e.Claim], e.Call)
		}
	}
	killed := history.Kills(events)
	events = slices.Clone(events)
	for i, e := range events {
		at, dead := killed[e.Process]
		if e.Kind != history.Belief || e.Return != 0 || !dead || proven[e.Claim] == 0 {
			continue
		}
		events[i].Deadline = proven[e.Claim] + int64(e.TTL-history.Margin(e.TTL))
		events[i].Return = min(at, events[i].Deadline)
	}
	return events
}

// judgeRuns fails what was run again although it was left done, and nothing was lost.
func (v *verdict) judgeRuns(events []history.Event, losses []loss) {
	byKey := map[string][]history.Event{}
	for _, e := range events {
		if e.Kind == runKind {
			byKey[e.Key] = append(byKey[e.Key], e)
		}
	}
	for key, runs := range byKey {
		slices.SortFunc(runs, func(a, b history.Event) int { return cmp.Compare(a.Call, b.Call) })
		for i, r := range runs {
			v.runs++
			if i > 0 {
				v.repeated++
			}
			switch r.Outcome {
			case history.OK:
				v.done++
				v.finished[r.Holder] = true
			case history.Unknown:
				v.finished[r.Holder] = true
				continue
			default:
				continue
			}
			for _, next := range runs[i+1:] {
				if !between(losses, key, r.Call, next.Call) {
					v.accuse("%s was run by %s although %s had left it done", r.Holder, next.Process, r.Process)
				}
			}
		}
	}
}

// asked fails what was asked for and not done.
func (v *verdict) asked(all []string) {
	for _, what := range all {
		if !v.finished[what] {
			v.accuse("%s was never done", what)
		}
	}
}

func TestJudge_knowsWhatLeasesCannotPrevent(t *testing.T) {
	belief := func(process string, call, end int64) history.Event {
		return history.Event{Process: process, Number: 1, Kind: history.Belief, Key: "k", Claim: process, TTL: ttl, Call: call, Return: end, Reason: "released"}
	}
	granted := func(process string, call int64, fence uint64) history.Event {
		return history.Event{Process: process, Kind: history.Acquire, Key: "k", Claim: process, Fence: fence, TTL: ttl, Call: call, Return: call + 1, Outcome: history.OK}
	}
	fenced := func(fence uint64, e history.Event) history.Event {
		e.Fence = fence
		return e
	}
	run := func(process string, call int64, outcome history.Outcome) history.Event {
		return history.Event{Process: process, Kind: runKind, Key: "k", Holder: "work", Call: call, Return: call + 1, Outcome: outcome}
	}
	lost := []loss{{key: "k", from: 15, to: 16}}
	for name, c := range map[string]struct {
		events []history.Event
		losses []loss
		wrong  int
	}{
		"one after the other":        {events: []history.Event{belief("a", 10, 20), belief("b", 20, 30)}},
		"two at a time":              {events: []history.Event{belief("a", 10, 20), belief("b", 19, 30)}, wrong: 1},
		"two at a time by a loss":    {events: []history.Event{belief("a", 10, 20), belief("b", 19, 30)}, losses: lost},
		"two at a time after a loss": {events: []history.Event{belief("a", 17, 20), belief("b", 19, 30)}, losses: lost, wrong: 1},
		"two at a time by a loss before the first believed in it": {losses: lost, events: []history.Event{
			granted("a", 14, 1), fenced(1, belief("a", 18, 30)), granted("b", 17, 2), fenced(2, belief("b", 20, 30)),
		}},
		"two at a time by a loss before either believed in it": {losses: lost, events: []history.Event{
			granted("a", 14, 1), fenced(1, belief("a", 20, 30)), granted("b", 17, 2), fenced(2, belief("b", 19, 30)),
		}},
		"two at a time by a loss before either was granted it": {wrong: 1, losses: lost, events: []history.Event{
			granted("a", 17, 1), fenced(1, belief("a", 18, 30)), granted("b", 18, 2), fenced(2, belief("b", 20, 30)),
		}},
		"a loss of another key":       {events: []history.Event{belief("a", 10, 20), belief("b", 19, 30)}, losses: []loss{{key: "l", from: 15, to: 16}}, wrong: 1},
		"again though it was done":    {events: []history.Event{run("a", 10, history.OK), run("b", 20, history.OK)}, wrong: 1},
		"again as that was forgotten": {events: []history.Event{run("a", 10, history.OK), run("b", 20, history.OK)}, losses: lost},
		"again as that was not known": {events: []history.Event{run("a", 10, history.Unknown), run("b", 20, history.OK)}},
		"again as it had failed":      {events: []history.Event{run("a", 10, history.Errored), run("b", 20, history.OK)}},
		"a belief that outlived its process's deadline": {events: []history.Event{
			{Process: "a", Number: 1, Kind: history.Acquire, Key: "k", Claim: "a", Call: 5, Return: 6, Outcome: history.OK, TTL: ttl},
			{Process: "a", Number: 2, Kind: history.Belief, Key: "k", Claim: "a", TTL: ttl, Call: 10},
			{Process: "a", Kind: history.Killed, Call: int64(3 * ttl), Return: int64(3 * ttl)},
			belief("b", int64(2*ttl), int64(4*ttl)),
		}},
	} {
		t.Run(name, func(t *testing.T) { require.Len(t, judge(c.events, c.losses).wrong, c.wrong) })
	}
	v := judge([]history.Event{run("a", 10, history.OK)}, nil)
	v.asked([]string{"work", "more work"})
	require.Equal(t, []string{"more work was never done"}, v.wrong)
}

func TestSchedule_isThatOfItsSeed(t *testing.T) {
	one, same, other := schedule(1, 3), schedule(1, 3), schedule(2, 3)
	differs := false
	seen := map[string]int{}
	for range faultNames {
		f := one()
		seen[f.name]++
		require.Equal(t, f, same())
		differs = differs || f != other()
	}
	require.True(t, differs)
	require.Len(t, seen, len(faultNames))
	require.Len(t, faults, len(faultNames))
}
