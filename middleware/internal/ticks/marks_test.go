package ticks_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// twoSpecs returns the marks of an entry that has two specs.
func twoSpecs(t *testing.T) (hourly, half *ticks.Marks) {
	t.Helper()
	store := memory.New()
	of := func(spec string) *ticks.Marks {
		return &ticks.Marks{Ledger: store, Name: "entry", Spec: ticks.SpecOf(spec, schedule(t, spec), time.UTC)}
	}
	return of("0 * * * *"), of("*/30 * * * *")
}

func clock(t *testing.T, text string) time.Time { t.Helper(); return at(t, "2026-11-21T"+text+":00Z") }

func TestMarks_aSpecBeginsOnce(t *testing.T) {
	t.Parallel()
	m, _ := twoSpecs(t)
	own, others, err := m.Read(t.Context(), clock(t, "20:00"))
	require.NoError(t, err)
	require.Zero(t, own.First())
	require.Empty(t, others)
	for _, want := range []bool{true, false} {
		isNew, err := m.Begin(t.Context(), clock(t, "08:00"), clock(t, "08:00"))
		require.NoError(t, err)
		require.Equal(t, want, isNew)
	}
	own, _, err = m.Read(t.Context(), clock(t, "20:00"))
	require.NoError(t, err)
	require.True(t, own.Mark().Equal(clock(t, "08:00")), "it has no ticks before")
}

// The clock of the process that began the first one was ahead, by an hour or by a day. The second
// one begins at 09:15.
func TestMarks_aSpecBeginsAfterTheOthers(t *testing.T) {
	t.Parallel()
	ahead := clock(t, "10:00")
	for first, want := range map[time.Time]time.Time{ahead: ahead.Add(time.Millisecond), ahead.AddDate(0, 0, 1): clock(t, "09:15")} {
		hourly, half := twoSpecs(t)
		_, err := hourly.Begin(t.Context(), first, first)
		require.NoError(t, err)
		_, err = half.Begin(t.Context(), clock(t, "09:15"), clock(t, "20:00"))
		require.NoError(t, err)
		own, _, err := half.Read(t.Context(), clock(t, "20:00"))
		require.NoError(t, err)
		require.True(t, own.First().Equal(want), own.First())
	}
}

// A newer spec replaces an older one as soon as ticks after the last one of that have an outcome.
// An older one that is back replaces a newer one if it is alone for long.
func TestMarks_whichSpecHasReplacedTheOther(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		hourly, half string // their marks; the second begins at 09:15
		ahead        string // a tick of the second
		old, new     string // since when the first and the second are replaced
	}{
		"the new one has had no tick yet": {"09:00", "", "", "09:15", ""},
		"the new one goes on":             {"09:00", "10:30", "", "09:15", ""},
		"both go on":                      {"10:00", "10:00", "", "", ""},
		"the old one for a while":         {"10:00", "09:30", "", "", ""},
		"the old one for long":            {"13:00", "09:30", "", "", "09:30"},
		"a tick of it has an outcome":     {"13:00", "09:30", "12:30", "", ""},
		"both, and the old one ended":     {"10:00", "10:30", "", "10:00", ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			hourly, half := twoSpecs(t)
			for m, of := range map[*ticks.Marks][2]string{hourly: {"08:00", test.hourly}, half: {"09:15", test.half}} {
				_, err := m.Begin(t.Context(), clock(t, of[0]), clock(t, of[0]))
				require.NoError(t, err)
				if of[1] != "" {
					_, err = m.Raise(t.Context(), clock(t, of[1]))
					require.NoError(t, err)
				}
			}
			if test.ahead != "" {
				require.NoError(t, half.Ahead(t.Context(), clock(t, test.ahead)))
			}
			for m, want := range map[*ticks.Marks]string{hourly: test.old, half: test.new} {
				own, others, err := m.Read(t.Context(), clock(t, "20:00"))
				require.NoError(t, err)
				replaced := own.Replaced(others, 2*time.Hour)
				require.Equal(t, want == "", replaced.IsZero(), replaced)
				require.True(t, want == "" || replaced.Equal(clock(t, want)), replaced)
			}
		})
	}
}

// The clock of a process with another spec was a day ahead. What it has marked says nothing of the
// ticks until then, nor that its spec has replaced this one.
func TestMarks_ofAnotherSpecInTheFutureDoNotCount(t *testing.T) {
	t.Parallel()
	hourly, half := twoSpecs(t)
	for m, from := range map[*ticks.Marks]string{hourly: "08:00", half: "09:15"} {
		_, err := m.Begin(t.Context(), clock(t, from), clock(t, from))
		require.NoError(t, err)
	}
	_, err := hourly.Raise(t.Context(), clock(t, "10:00"))
	require.NoError(t, err)
	_, err = half.Raise(t.Context(), clock(t, "10:00").AddDate(0, 0, 1))
	require.NoError(t, err)
	require.NoError(t, half.Ahead(t.Context(), clock(t, "11:00").AddDate(0, 0, 1)))
	for trusted, counts := range map[time.Time]bool{ticks.Trusted(clock(t, "14:00"), time.Minute): false, clock(t, "11:00").AddDate(0, 0, 1): true} {
		own, others, err := hourly.Read(t.Context(), trusted)
		require.NoError(t, err)
		require.Equal(t, counts, ticks.Handled(clock(t, "12:00"), others))
		require.Equal(t, counts, !own.Replaced(others, time.Hour).IsZero())
	}
	own, _, err := half.Read(t.Context(), clock(t, "14:00"))
	require.NoError(t, err)
	require.True(t, own.Settled(clock(t, "12:00")), "its own mark is what it has")
}

func TestRemaining_leavesOutGapsAndWhatOtherSpecsHaveHandled(t *testing.T) {
	t.Parallel()
	hourly, half := twoSpecs(t)
	for _, m := range []*ticks.Marks{hourly, half} {
		_, err := m.Begin(t.Context(), clock(t, "08:00"), clock(t, "08:00"))
		require.NoError(t, err)
	}
	own, _, err := hourly.Read(t.Context(), clock(t, "20:00"))
	require.NoError(t, err)
	require.NoError(t, hourly.Omit(t.Context(), own, clock(t, "09:00"), clock(t, "11:00")))
	_, err = hourly.Raise(t.Context(), clock(t, "12:00"))
	require.NoError(t, err)
	require.NoError(t, hourly.Ahead(t.Context(), clock(t, "14:00")))
	tests := []struct {
		m    *ticks.Marks
		spec string
		want []string // from 08:00 to 15:00
	}{
		{half, "*/30 * * * *", []string{
			"08:30", "09:30", "10:00", "10:30", "11:00", "11:30", "12:30", "13:00", "13:30", "14:30", "15:00",
		}},
		{hourly, "0 * * * *", []string{"09:00", "13:00", "14:00", "15:00"}},
	}
	for _, test := range tests {
		own, others, err := test.m.Read(t.Context(), clock(t, "20:00"))
		require.NoError(t, err)
		require.Len(t, others, 1)
		var got []string
		for _, tick := range ticks.In(ticks.Remaining{Schedule: schedule(t, test.spec), Own: own, Others: others}, clock(t, "08:00"), clock(t, "15:00")) {
			got = append(got, tick.UTC().Format("15:04"))
		}
		require.Equal(t, test.want, got)
	}
	require.Zero(t, ticks.Remaining{Schedule: schedule(t, "0 * * * *"), Until: clock(t, "08:30")}.Next(clock(t, "08:00")))
}
