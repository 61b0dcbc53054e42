package guardcron_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A run of 151 s of a job that is due each minute, in three processes. No run ends at the instant
// of a deadline.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		opts  []guardcron.Option
		times []string // when runs begin
		most  int32    // at a time
		want  []string
	}{
		"Skip is the default": {nil, []string{"12:01:00", "12:04:00", "12:07:00"}, 1,
			[]string{"12:01:00 ran", "12:02:00 skipped", "12:03:00 skipped", "12:04:00 ran", "12:05:00 skipped", "12:06:00 skipped", "12:07:00 running"}},
		"Wait, up to the deadline of a minute": {[]guardcron.Option{guardcron.WithOverlap(guardcron.Wait)}, []string{"12:01:00", "12:03:31", "12:06:02"}, 1,
			[]string{"12:01:00 ran", "12:02:00 skipped", "12:03:00 ran", "12:04:00 skipped", "12:05:00 skipped", "12:06:00 running"}},
		"Wait, up to a deadline of three": {[]guardcron.Option{guardcron.WithOverlap(guardcron.Wait), guardcron.WithStartDeadline(3 * time.Minute)},
			[]string{"12:01:00", "12:03:31", "12:06:02"}, 1, nil},
		"Allow": {[]guardcron.Option{guardcron.WithOverlap(guardcron.Allow)},
			[]string{"12:01:00", "12:02:00", "12:03:00", "12:04:00", "12:05:00", "12:06:00", "12:07:00"}, 3, nil},
		"up to two": {[]guardcron.Option{guardcron.WithLease(guard.WithLimit(2))},
			[]string{"12:01:00", "12:02:00", "12:04:00", "12:05:00", "12:07:00"}, 2, nil},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var now, most atomic.Int32
				f := func(context.Context) error {
					n := now.Add(1)
					most.Store(max(most.Load(), n))
					defer now.Add(-1)
					time.Sleep(151 * time.Second) // virtual time
					return nil
				}
				var a *process
				for _, who := range []string{"a", "b", "c"} {
					a = s.process(who, setup{})
					a.add("job", "* * * * *", f, test.opts...)
					a.cron.Start()
				}
				s.until("2026-06-15T12:07:10Z")
				times := []string{}
				for _, at := range s.times() {
					times = append(times, instant(s.t, at).Round(time.Second).Format(time.TimeOnly))
				}
				require.Equal(s.t, test.times, times)
				require.Equal(s.t, test.most, most.Load())
				if test.want != nil {
					require.ElementsMatch(s.t, test.want, a.outcomes("job"))
				}
				require.Len(s.t, slices.Compact(s.ticks()), len(test.times), "each tick is run once")
				s.sleep(3 * time.Minute)
			})
		})
	}
}

// The context of a run that hangs ends. Processes that wait for its tick do not run it again.
func TestWithMaxRun_endsTheContextAndIsNoReasonToRunAgain(t *testing.T) {
	t.Parallel()
	for title, opts := range map[string][]guardcron.Option{
		"Skip":  nil,
		"Allow": {guardcron.WithOverlap(guardcron.Allow)},
	} {
		for job, took := range map[string]time.Duration{"ends with its context": 10 * time.Second, "takes no notice": 50 * time.Second} {
			t.Run(title+", "+job, func(t *testing.T) {
				t.Parallel()
				onSite(t, noon, func(s *site) {
					var ended atomic.Int64
					all := s.three(setup{}, "0 * * * *", func(ctx context.Context) error {
						begun := time.Now()
						<-ctx.Done()
						ended.Store(int64(time.Since(begun).Round(time.Second)))
						require.ErrorIs(s.t, context.Cause(ctx), guard.ErrLost)
						var lost *guard.LostError
						require.ErrorAs(s.t, context.Cause(ctx), &lost)
						require.Equal(s.t, guard.LossMaxHold, lost.Reason)
						time.Sleep(took - time.Since(begun)) // virtual time
						return nil
					}, append(opts, guardcron.WithMaxHold(10*time.Second), guardcron.WithStartDeadline(5*time.Minute))...)
					s.until("2026-06-15T13:10:00Z")
					require.Equal(s.t, []string{"2026-06-15T13:00:00Z"}, s.ticks(), "once")
					require.Equal(s.t, 10*time.Second, time.Duration(ended.Load()))
					require.Equal(s.t, []string{"13:00:00 lost"}, all[0].outcomes("job"))
					r := all[0].records("job")[0]
					require.Equal(s.t, took, r.End.Sub(r.Start).Round(time.Second))
				})
			})
		}
	}
}

// guard.WithMaxHold would also end the lease of the tick: processes that wait for it run it again.
func TestWithMaxHold_isNotWhatWithLeaseDoes(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		opt  guardcron.Option
		runs int
	}{
		"WithMaxHold": {guardcron.WithMaxHold(10 * time.Second), 1},
		"WithLease":   {guardcron.WithLease(guard.WithMaxHold(10 * time.Second)), 3},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				s.three(setup{}, "0 * * * *", hanging(15*time.Second), guardcron.WithStartDeadline(10*time.Minute), test.opt)
				s.until("2026-06-15T13:30:00Z")
				require.Len(s.t, s.ticks(), test.runs)
			})
		})
	}
}

func TestWithMaxRun_letsTheNextTickInATTLLater(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var calls atomic.Int32
		p := s.three(setup{guard: []guard.Option{guard.WithTTL(30 * time.Second)}}, "* * * * *", func(ctx context.Context) error {
			if calls.Add(1) > 1 {
				return nil
			}
			time.Sleep(10 * time.Minute) // the first one hangs
			return ctx.Err()
		}, guardcron.WithMaxHold(45*time.Second))[0]
		s.until("2026-06-15T12:05:00Z")
		s.sleep(time.Second)
		require.Equal(s.t, []string{"12:01:00 running", "12:02:00 skipped", "12:03:00 ran", "12:04:00 ran", "12:05:00 ran"}, p.outcomes("job"))
		s.until("2026-06-15T12:12:00Z")
		s.sleep(time.Second)
		require.Contains(s.t, p.outcomes("job"), "12:01:00 lost")
		require.Len(s.t, s.ticks(), 11)
	})
}

// With Wait, the processes that do not get a tick wait for it, and one runs it when it is free:
// not all of them.
func TestWait_runsTheTickOnce(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		s.three(setup{}, "* * * * *", lasting(70*time.Second), guardcron.WithOverlap(guardcron.Wait), guardcron.WithStartDeadline(5*time.Minute))
		s.until("2026-06-15T12:04:00Z")
		require.Len(s.t, s.ticks(), 3, "one after the other, in no certain order")
		require.Len(s.t, slices.Compact(s.ticks()), 3, "each once")
	})
}

// Who waits for a run elsewhere leaves when it is closed, and another process has the tick.
func TestClose_leavesTheTickToOthers(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		opts := []guardcron.Option{guardcron.WithOverlap(guardcron.Wait), guardcron.WithStartDeadline(90 * time.Second)}
		var o recorder
		begin := func(who string, f func(context.Context) error, more ...guardcron.Option) *process {
			p := s.process(who, setup{})
			p.add("job", "*/2 * * * *", f, append(more, opts...)...)
			p.cron.Start()
			return p
		}
		first := begin("first", lasting(150*time.Second))
		s.until("2026-06-15T12:02:01Z")
		first.cron.Stop()
		second := begin("second", nil, guardcron.WithObserver(o.record))
		s.until("2026-06-15T12:04:01Z")
		third := begin("third", nil)
		s.until("2026-06-15T12:04:05Z")
		second.cron.Stop()
		begun := time.Now()
		require.NoError(s.t, second.Close(context.Background()), "it has nothing that runs")
		require.Less(s.t, time.Since(begun), time.Second, "it leaves at once")
		require.Empty(s.t, o.outcomes(), "which is nothing to report")
		s.until("2026-06-15T12:05:30Z")
		require.Equal(s.t, []string{"12:02:00 ran", "12:04:00 ran"}, third.outcomes("job"))
		require.Equal(s.t, "third", third.records("job")[0].Who)
	})
}

func TestOverlap_storeThatCannotBeAskedIsNoRun(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o, missed recorder
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil, guardcron.WithObserver(o.record), onMissed(missed.record))
		p.cron.Start()
		s.sleep(time.Second)
		p.line.cut.Store(true)
		s.until("2026-06-15T12:02:30Z")
		require.Empty(s.t, s.ticks(), "not without a lease")
		require.Equal(s.t, []string{"12:01:00 unavailable"}, o.outcomes())
		require.Contains(s.t, o.records[0].Reason, errCut.Error())
		require.Empty(s.t, missed.outcomes(), "others may have run it")
		p.line.cut.Store(false)
		s.until("2026-06-15T12:04:00Z")
		require.Equal(s.t, every(s.t, time.Minute, "2026-06-15T12:02:00Z", "2026-06-15T12:04:00Z"), s.ticks())
		require.Equal(s.t, []string{"12:01:00 missed"}, missed.outcomes(), "which it learns from the store")
	})
}

// A process that died left two leases. That of the tick may end before that of the job, which is no
// run that overlaps then: it is not renewed.
func TestOverlap_leaseThatIsNotRenewedIsThatOfTheDead(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]string{15 * time.Second: "13:00:00 ran", 40 * time.Second: "13:00:00 skipped"} {
		onSite(t, noon, func(s *site) {
			dead, p := s.process("dead", setup{}), s.process("a", setup{})
			p.add("job", "0 * * * *", nil)
			p.cron.Start()
			s.until("2026-06-15T12:59:50Z")
			_, err := dead.guard.Acquire(context.Background(), "cron:job", guard.WithTTL(ttl), guard.WithoutRenewal())
			require.NoError(s.t, err)
			s.until("2026-06-15T13:00:20Z")
			require.Equal(s.t, []string{want}, p.outcomes("job"))
		})
	}
}

var errJob = errors.New("the job has failed")
