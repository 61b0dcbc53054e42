package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

const day = 24 * time.Hour

// A fortnight is a job that runs each day for 14 days on two processes over one store.
type fortnight struct {
	period     time.Duration
	one, other *guard.Guard
	work       time.Duration
	mu         sync.Mutex
	runs       []time.Time // when each run began
	results    map[string]int
}

// start starts the job at the instant, and does not wait for it.
func (f *fortnight) start(t *testing.T, at time.Time, g *guard.Guard) {
	go func() {
		time.Sleep(time.Until(at))
		err := g.Do(t.Context(), "backup", func(context.Context) error {
			f.note(func() { f.runs = append(f.runs, time.Now()) })
			time.Sleep(f.work)
			return nil
		}, guard.WithOncePer(f.period))
		result := "ran"
		switch {
		case errors.Is(err, guard.ErrDone):
			result = "done"
		case errors.Is(err, guard.ErrBusy):
			result = "busy"
		case err != nil:
			t.Error(err)
		}
		f.note(func() { f.results[result]++ })
	}()
}

func (f *fortnight) note(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

func TestWithOncePer_runsOnEachOf14Days(t *testing.T) {
	// The schedules say at which hour of a day the job starts: on the one process, and on the
	// other, whose clock differs.
	schedules := map[string]func(d int) (one, other float64){
		"clocks that agree":         func(int) (one, other float64) { return 0, 0 },
		"a second apart":            func(int) (one, other float64) { return 0, 1. / 3600 },
		"an hour apart":             func(int) (one, other float64) { return 0, 1 },
		"clocks that are set often": func(d int) (one, other float64) { return float64(d%2) * 2, 1 },
		"summer time from the 4th to the 8th": func(d int) (one, other float64) {
			if d >= 3 && d < 8 {
				return -1, -1
			}
			return 0, 0
		},
	}
	for name, schedule := range schedules {
		for _, work := range []float64{0, 1. / 3600, 1. / 12, 1, 12, 20, 21.5} {
			t.Run(fmt.Sprint(name, ", ", work, " hours of work"), func(t *testing.T) {
				f := runFortnight(t, time.Minute, work, schedule)
				require.Len(t, f.runs, 14, "%v", f.results)
				require.Equal(t, 14, f.results["ran"])
			})
		}
	}
	// The next tick finds no marker of a run that ends near it.
	for _, work := range []float64{21.6, 22, 23} {
		t.Run(fmt.Sprint(work, " hours of work, near the next tick"), func(t *testing.T) {
			require.Len(t, runFortnight(t, time.Minute, work, schedules["an hour apart"]).runs, 14)
		})
	}
	for _, work := range []float64{1. / 12, 1} {
		t.Run(fmt.Sprint(work, " hours of work, in days of 24 hours"), func(t *testing.T) {
			require.Len(t, runFortnight(t, time.Hour, work, schedules["an hour apart"]).runs, 14)
		})
	}
}

// runFortnight runs the job for 14 days. The rule is in proportion to the period, so an hour of
// these days can be a minute: a Guard wakes up each few seconds while it holds a lease.
func runFortnight(t *testing.T, hour time.Duration, work float64, schedule func(d int) (one, other float64)) *fortnight {
	hours := func(n float64) time.Duration { return time.Duration(n * float64(hour)) }
	f := &fortnight{period: 24 * hour, work: hours(work), results: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		f.one, f.other = newGuard(t, store), newGuard(t, store)
		first := time.Now().Add(f.period)
		for d := range 14 {
			one, other := schedule(d)
			at := first.Add(time.Duration(d) * f.period)
			f.start(t, at.Add(hours(one)), f.one)
			f.start(t, at.Add(hours(other)), f.other)
		}
		time.Sleep(17 * f.period)
		synctest.Wait()
	})
	return f
}

// A run that is longer than the period makes the tick under it busy, and the one after it run.
func TestWithOncePer_withARunLongerThanThePeriod(t *testing.T) {
	f := runFortnight(t, time.Minute, 30, func(int) (one, other float64) { return 0, 0.1 })
	require.Len(t, f.runs, 7)
	require.Equal(t, map[string]int{"ran": 7, "busy": 21}, f.results)
}

// The marker begins with the run, and ends nine tenths of the period later.
func TestWithOncePer_endsATenthOfThePeriodBeforeTheNextStart(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		require.NoError(t, g.Do(t.Context(), "k", sleeping(time.Hour), guard.WithOncePer(10*time.Hour)))
		time.Sleep(8*time.Hour - time.Second)
		_ = as[*guard.DoneError](t, g.Do(t.Context(), "k", nothing, guard.WithOncePer(10*time.Hour)))
		time.Sleep(2 * time.Second)
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithOncePer(10*time.Hour)))
	})
}

// Only a run that has returned nil leaves a marker.
func TestOnce_leavesNothingAfterARunThatFails(t *testing.T) {
	for name, fails := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return errors.New("no disk") },
		"a panic":  func(context.Context) error { panic("no disk") },
		"a lease that was lost": func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			for key, once := range map[string]guard.Option{"a period": guard.WithOncePer(day), "a window": guard.WithOnce(day)} {
				func() {
					defer func() { _ = recover() }()
					require.Error(t, g.Do(t.Context(), key, fails, once, guard.WithMaxHold(time.Minute)))
				}()
				synctest.Wait()
				require.NoError(t, g.Do(t.Context(), key, nothing, once), "in the same period")
				require.ErrorIs(t, g.Do(t.Context(), key, nothing, once), guard.ErrDone)
			}
		})
	}
}

// Whether Do or the caller ends the lease, the marker is the same.
func TestWithOncePer_ofALeaseThatTheCallerEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		lease, err := g.Acquire(t.Context(), "k", guard.WithOncePer(10*time.Hour))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, lease.Complete(t.Context()))
		time.Sleep(8*time.Hour - time.Second)
		_, err = g.Acquire(t.Context(), "k", guard.WithOncePer(10*time.Hour))
		require.ErrorIs(t, err, guard.ErrDone)
		time.Sleep(2 * time.Second)
		lease, err = g.Acquire(t.Context(), "k", guard.WithOncePer(10*time.Hour))
		require.NoError(t, err)
		time.Sleep(9*time.Hour + time.Second)
		require.NoError(t, lease.Complete(t.Context()), "the next start is near: no marker, and no error")
		require.NoError(t, g.Do(t.Context(), "k", nothing))
	})
}

// Of the options that set the window, the last one counts, as for a Guard so for a call.
func TestWithOncePer_andWithOnceReplaceEachOther(t *testing.T) {
	for name, opts := range map[string][]guard.Option{
		"per period":   {guard.WithOnce(time.Hour), guard.WithOncePer(10 * time.Hour)},
		"from the end": {guard.WithOncePer(time.Hour), guard.WithOnce(9 * time.Hour)},
		"neither":      {guard.WithOncePer(time.Hour), guard.WithOnce(0)},
		"none":         {guard.WithOnce(time.Hour), guard.WithOncePer(0)},
	} {
		inTimeOf(t, name, func(t *testing.T) {
			g := newGuard(t, memory.New(), opts[0])
			require.NoError(t, g.Do(t.Context(), "k", sleeping(time.Hour), opts[1]))
			left := time.Duration(0)
			var done *guard.DoneError
			if errors.As(g.Do(t.Context(), "k", nothing, opts[1]), &done) {
				left = done.Left
			}
			require.Equal(t, map[string]time.Duration{"per period": 8 * time.Hour, "from the end": 9 * time.Hour}[name], left)
		})
	}
	_, err := guard.New(memory.New(), guard.WithOncePer(-time.Hour))
	refused := as[*guard.SettingError](t, err)
	require.Equal(t, "WithOncePer", refused.Setting)
	_, err = guard.New(memory.New(), guard.WithOncePer(day), guard.WithLimit(3))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "WithOncePer", refused.Setting)
}

// A store that does not answer the release may lack the marker: the caller learns of that.
func TestWithOncePer_reportsAMarkerThatMayBeMissing(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.failReleasesFor(time.Minute)
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing, guard.WithOncePer(day)), guard.ErrMarker)
		time.Sleep(2 * time.Minute)
	})
}
