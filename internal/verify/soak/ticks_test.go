package soak_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// A tally is the result of the ticks of all jobs.
type tally struct {
	ran, reported int
	open          []string // those that neither ran nor were reported
}

// ticksOf looks for the ticks of the seconds from first to last in the events.
func ticksOf(events []history.Event, first, last int64) tally {
	ran, reported := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		if e.Kind == runKind && (e.Outcome == history.OK || e.Outcome == history.Unknown) {
			ran[e.Holder] = true
		}
		var from, to int64
		if _, err := fmt.Sscan(e.Holder, &from, &to); e.Kind != reportKind || err != nil {
			continue
		}
		for second := from; second <= to; second++ {
			reported[tickName(e.Key, second)] = true
		}
	}
	var t tally
	for _, name := range append(slices.Sorted(maps.Keys(cronJobs)), scheduled) {
		for second := first; second <= last; second++ {
			switch what := tickName(name, second); {
			case ran[what]:
				t.ran++
			case reported[what]:
				t.reported++
			default:
				t.open = append(t.open, what)
			}
		}
	}
	return t
}

// requireEachTick waits until each tick of a time has run or been reported. That none ran again
// after it had been left done is for judge.
func (s *site) requireEachTick(from, to time.Time) tally {
	var t tally
	for end := time.Now().Add(soon); ; time.Sleep(time.Second) { // between two looks
		t = ticksOf(s.events(), from.Unix()+2, to.Unix()-1)
		if len(t.open) == 0 {
			return t
		}
		require.True(s.t, time.Now().Before(end), "%d ticks that neither ran nor were reported: %v", len(t.open), t.open[:min(len(t.open), 20)])
	}
}

func TestTicksOf_findsThoseThatNeitherRanNorWereReported(t *testing.T) {
	run := func(name string, second int64, outcome history.Outcome) history.Event {
		return history.Event{Kind: runKind, Holder: tickName(name, second), Outcome: outcome}
	}
	got := ticksOf([]history.Event{
		run("short", 10, history.OK), run("long", 10, history.Unknown), run(scheduled, 10, history.OK),
		run("short", 11, history.Errored), run("long", 11, history.OK),
		{Kind: reportKind, Key: scheduled, Holder: "11 12"}, {Kind: reportKind, Key: "long", Holder: "12 12"},
	}, 10, 12)
	require.Equal(t, tally{ran: 4, reported: 3, open: []string{tickName("short", 11), tickName("short", 12)}}, got)
}
