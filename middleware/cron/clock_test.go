package guardcron_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

var inNamespace = []guard.Option{guard.WithNamespace("test")}

// A Cron has a single entry, so that nothing else wakes it. Its clock is set, by so much and so
// long before a tick or after it. Each tick runs once, within 13 seconds by the clock as it is
// then, or is reported if the clock went past it by more than the start deadline.
func TestFiring_clockThatIsSet(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{5 * time.Second, 61 * time.Second, 2 * time.Minute, 17 * time.Minute, 100 * time.Minute} {
		for _, by := range []time.Duration{by, -by} {
			for _, before := range []time.Duration{20 * time.Minute, 70 * time.Second, 11 * time.Second, time.Second, -time.Second, -3 * time.Minute} {
				t.Run(fmt.Sprintf("by %v, %v before", by, before), func(t *testing.T) {
					t.Parallel()
					onSite(t, noon, func(s *site) { requireTicksAfterStep(s, by, before) })
				})
			}
		}
	}
}

// requireTicksAfterStep runs a job at each full hour, and sets the clock so long before 14:00.
func requireTicksAfterStep(s *site, by, before time.Duration) {
	var missed recorder
	p := s.process("a", setup{guard: inNamespace, jobs: []guardcron.Option{onMissed(missed.record)}})
	own := func() time.Time { return time.Now().Add(guardcron.Clock(p.Jobs)) }
	late := map[time.Time]time.Duration{} // by the clock as it is then
	p.add("job", "0 * * * *", func(ctx context.Context) error {
		tick, _ := guardcron.Tick(ctx)
		require.NotContains(s.t, late, tick, "it is run again")
		late[tick] = own().Sub(tick)
		return nil
	})
	p.cron.Start()
	at := instant(s.t, "2026-06-15T14:00:00Z").Add(-before)
	s.until(at.Format(time.RFC3339Nano))
	guardcron.SetClock(p.Jobs, s.base+by)
	s.until("2026-06-15T19:30:00Z")
	given := map[time.Time]bool{}
	for _, r := range missed.records {
		for tick := range ticksBetween(s.t, "0 * * * *", r) {
			given[tick] = true
		}
	}
	const soon, deadline = 13 * time.Second, time.Minute
	for tick := instant(s.t, "2026-06-15T13:00:00Z"); tick.Before(own().Add(-soon)); tick = tick.Add(time.Hour) {
		after := max(0, at.Add(by).Sub(tick)) // the tick, if the clock went past it
		if !tick.After(at) {
			after = 0
		}
		took, ran := late[tick]
		switch {
		case after > deadline:
			require.True(s.t, given[tick], "%v must be missed", tick)
			require.False(s.t, ran, tick)
		case given[tick]: // it was too late when that was noticed
			require.Greater(s.t, after, deadline-soon, tick)
		default:
			require.True(s.t, ran, "%v must be run: %v %v", tick, late, missed.outcomes())
			require.LessOrEqual(s.t, took, after+soon, tick)
		}
	}
}

// The clock is set to just before a tick that may hardly be late: a process that has noticed that
// does not sleep past it.
func TestFiring_clockThatIsSetAndAShortDeadline(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{guard: inNamespace})
		p.add("job", "0 * * * *", nil, guardcron.WithStartDeadline(4*time.Second))
		p.cron.Start()
		s.until("2026-06-15T12:57:51Z")
		guardcron.SetClock(p.Jobs, s.base+2*time.Minute) // 12:59:51
		s.sleep(20 * time.Second)
		require.Equal(s.t, []string{"2026-06-15T13:00:00Z"}, s.ticks())
	})
}

// The clock is set, and the Cron was stopped, or the job was removed, or Jobs were closed: nothing
// fires.
func TestFiring_clockThatIsSetWhileNothingMayRun(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		end  func(p *process, id cron.EntryID)
		want []string // after the Cron has started again
	}{
		"stopped": {func(p *process, _ cron.EntryID) { <-p.cron.Stop().Done() }, []string{"2026-06-15T13:00:00Z", "2026-06-15T14:00:00Z"}},
		"removed": {func(p *process, _ cron.EntryID) { <-p.cron.Stop().Done(); _ = p.Remove("job") }, []string{}},
		"removed by the Cron": {func(p *process, id cron.EntryID) {
			<-p.cron.Stop().Done()
			p.cron.Remove(id)
		}, []string{}},
		"removed from one that runs": {func(p *process, id cron.EntryID) { p.cron.Remove(id) }, []string{}},
		"closed":                     {func(p *process, _ cron.EntryID) { _ = p.Close(context.Background()) }, []string{}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				p := s.process("a", setup{guard: inNamespace})
				id := p.add("job", "0 * * * *", nil)
				p.cron.Start()
				s.until("2026-06-15T12:57:50Z")
				test.end(p, id)
				guardcron.SetClock(p.Jobs, s.base+2*time.Minute) // 12:59:50
				s.sleep(25 * time.Second)
				require.Empty(s.t, s.ticks())
				p.cron.Start() // it can still be started in time
				s.until("2026-06-15T14:30:00Z")
				require.Equal(s.t, test.want, s.ticks())
			})
		})
	}
}

// A chain that leaves a job out is asked once more for each tick, and not over and over.
func TestFiring_throughAChainThatLeavesItOut(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var asked atomic.Int32
		chain := cron.WithChain(func(cron.Job) cron.Job { return cron.FuncJob(func() { asked.Add(1) }) })
		p := s.process("a", setup{guard: inNamespace, cron: []cron.Option{chain}})
		p.add("job", "0 * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T14:30:00Z")
		require.Empty(s.t, s.ticks())
		require.LessOrEqual(s.t, asked.Load(), int32(4))
		require.Len(s.t, p.cron.Entries(), 1)
	})
}

// Processes whose clocks are set, in real time. Each has one entry, which is due once in a day.
func TestWeekly_clocksOfProcessesAreSet(t *testing.T) {
	redistest.Long(t)
	program, err := clocktest.BuildGo(t.Context(), t.TempDir(), "-c", ".")
	require.NoError(t, err)
	for title, test := range map[string]struct {
		first, step time.Duration // by how much the clock is off at the start, and then moves
		into        time.Duration // until the tick, by the clock after that
	}{
		"ahead, before the tick":   {0, 2 * time.Minute, 20 * time.Second},
		"ahead, past the tick":     {0, 2 * time.Minute, -30 * time.Second},
		"back, from past the tick": {10 * time.Minute, -10 * time.Minute, 20 * time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			clock := clocktest.New(t)
			clock.Jump(test.first)
			tick := time.Now().Add(test.first + test.step + test.into).Truncate(time.Second).UTC()
			order, log := procPlace(t, 1, 5*time.Second, procJob{
				Name: "job", Spec: fmt.Sprintf("CRON_TZ=UTC %d %d %d * * *", tick.Second(), tick.Minute(), tick.Hour()), Deadline: 5 * time.Minute,
			})
			child := startProgram(t, program, order.as("alone", 0), clock.Env()...)
			clock.Jump(test.step)
			begun := log.await(t, "the tick", func(e procEvent) bool { return e.Kind == "end" })
			require.Equal(t, tick.UnixMilli(), begun.Tick, begun)
			child.stop(t)
		})
	}
}
