package guardcron_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Two processes start at the same time, after a break of more than four ticks.
func TestLong_processesHandleTheTicksOfADowntimeOnce(t *testing.T) {
	redistest.Long(t)
	for name, caught := range map[string]int{"no catch-up": 0, "the newest": 1, "up to three": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			order, log := procPlace(t, 1, 2*time.Second, procJob{Name: "job", Takes: 200 * time.Millisecond, CatchUp: caught, Deadline: time.Second})
			w := startHere(t, order.as("before", 0))
			log.await(t, "a run", func(e procEvent) bool { return e.Kind == "end" })
			require.NoError(t, w.close(procSoon))
			last := slices.MaxFunc(log.read(t), func(a, b procEvent) int { return int(a.Tick - b.Tick) }).Tick
			untilTick(last/1000+7, 500*time.Millisecond) // with no process up
			end := time.Now().Unix()
			a, b := startProc(t, order.as("a", 0)), startProc(t, order.as("b", 0))
			back := time.Now().Unix()
			log.await(t, "a new tick", func(e procEvent) bool { return e.Tick > back*1000 && e.Kind == "end" })
			// Those that were due while the processes started can still be started in time, or
			// were, or not.
			require.Eventually(t, func() bool {
				events := log.read(t)
				for tick := last + 1000; tick <= back*1000; tick += 1000 {
					if !events.settled("job", tick) {
						return false
					}
				}
				return true
			}, procSoon, 50*time.Millisecond)
			a.stop(t)
			b.stop(t)

			events := log.read(t)
			var begun []int64
			for tick := last + 1000; tick <= back*1000; tick += 1000 {
				events.requireTick(t, "job", tick)
				if ran := events.ran("job", tick); len(ran) > 0 {
					begun = append(begun, tick)
				}
			}
			events.requireNoTwo(t, "job")
			old := slices.DeleteFunc(slices.Clone(begun), func(tick int64) bool { return tick > (end-max(int64(caught), 1))*1000 })
			require.Empty(t, old, "more than the newest %d of the ticks up to %d", caught, end)
			require.GreaterOrEqual(t, len(begun), caught)
			for tick := last + 1000; tick < (end-1-int64(caught))*1000; tick += 1000 {
				missed := events.missed("job", tick)
				require.Len(t, missed, 1, tick)
				require.Contains(t, missed[0].Reason, "nobody has finished")
			}
			// new ones do not wait for the old
			starts := slices.DeleteFunc(events.of("job", 0, "begin"), func(e procEvent) bool { return e.Tick > end*1000 })
			require.True(t, slices.IsSortedFunc(starts, func(a, b procEvent) int { return int(a.Tick - b.Tick) }) || caught < 2, "the oldest first: %v", starts)
		})
	}
}

// When a process comes up again, the marker of the newest tick has gone. The markers of new ticks
// go while it catches up with the old ones.
func TestCatchUp_doesNotRunAgainATickWhoseMarkerHasGone(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		start := func(who string) *process {
			p := s.process(who, setup{cron: []cron.Option{cron.WithSeconds()}, jobs: []guardcron.Option{
				guardcron.WithTickMemory(1500 * time.Millisecond), guardcron.WithStartDeadline(time.Second), guardcron.WithCatchUp(100),
				guardcron.WithOverlap(guardcron.Allow),
			}})
			// to catch up takes longer than a marker stands
			p.add("job", "* * * * * *", hanging(700*time.Millisecond))
			p.cron.Start()
			return p
		}
		first := start("a")
		s.sleep(2500 * time.Millisecond)
		first.end()
		s.sleep(2500 * time.Millisecond) // longer than the marker stands
		start("b")
		s.sleep(20 * time.Second)
		require.Equal(s.t, every(s.t, time.Second, "2026-06-15T12:00:31Z", "2026-06-15T12:00:55Z"), s.ticks())
	})
}

func TestProcesses_onePausedAloneRunsNothingOlderThanTheDeadline(t *testing.T) {
	t.Parallel()
	order, log := procPlace(t, 1, time.Second, procJob{Name: "job", Takes: time.Millisecond, Deadline: 1500 * time.Millisecond})
	p := startProc(t, order.as("alone", 0))
	log.await(t, "a run", func(e procEvent) bool { return e.Kind == "end" })
	require.NoError(t, p.Signal(syscall.SIGUSR2))
	frozen := log.await(t, "the pause", func(e procEvent) bool { return e.Kind == "freezes" })
	lines := len(log.read(t))
	untilTick(frozen.At/1000+8, 300*time.Millisecond) // while no process runs
	resumed := time.Now().UnixMilli()
	require.NoError(t, p.Thaw())
	log.await(t, "a new tick", func(e procEvent) bool { return e.Tick > resumed && e.Kind == "end" })
	from, to := frozen.At/1000+1, resumed/1000
	require.Eventually(t, func() bool {
		events := log.read(t)
		for tick := from; tick <= to; tick++ {
			if !events.settled("job", tick*1000) {
				return false
			}
		}
		return true
	}, procSoon, 50*time.Millisecond)
	p.stop(t)
	events := log.read(t)
	missed := 0
	for tick := from; tick <= to; tick++ {
		events.requireTick(t, "job", tick*1000)
		missed += len(events.of("job", tick*1000, "missed"))
	}
	require.GreaterOrEqual(t, missed, 5)
	for _, e := range events[lines:].of("job", 0, "begin") {
		if e.Tick > frozen.At {
			require.GreaterOrEqual(t, e.Tick, resumed-1500, "an old tick")
		}
	}
}

// The process that catches up is killed in the middle of it.
func TestProcesses_anotherGoesOnWithTheTicksOfADowntime(t *testing.T) {
	t.Parallel()
	order, log := procPlace(t, 1, 3*time.Second, procJob{Name: "longest", Takes: 2 * time.Second, CatchUp: 3, Deadline: time.Second})
	w := startHere(t, order.as("before", 0))
	log.await(t, "a run", func(e procEvent) bool { return e.Kind == "begin" })
	require.NoError(t, w.close(procSoon))
	last := slices.MaxFunc(log.read(t), func(a, b procEvent) int { return int(a.Tick - b.Tick) }).Tick
	untilTick(last/1000+6, 0) // with no process up
	a := startProc(t, order.as("a", 0))
	killed := haltARun(t, log, map[string]*procChild{"a": a}, syscall.SIGUSR1)
	<-a.Done()
	back := time.Now().UnixMilli()
	b := startProc(t, order.as("b", 0))
	unsettled := func() (ticks []int64) {
		events := log.read(t)
		for tick := last; tick <= back; tick += 1000 {
			if !events.settled("longest", tick) {
				ticks = append(ticks, tick)
			}
		}
		return ticks
	}
	for over := time.Now().Add(procSoon); len(unsettled()) > 0 && time.Now().Before(over); {
		time.Sleep(50 * time.Millisecond) // between two looks
	}
	require.Empty(t, unsettled(), "neither run nor reported: one was killed in %v", killed.Tick)
	b.stop(t)
	events := log.read(t)
	for tick := last; tick <= back; tick += 1000 {
		events.requireTick(t, "longest", tick)
	}
	events.requireNoTwo(t, "longest")
}
