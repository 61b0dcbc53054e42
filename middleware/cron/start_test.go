package guardcron_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// ranOnce runs the job of a process until the instant, and forgets that.
func (s *site) ranOnce(spec, until string, opts ...guardcron.Option) {
	s.t.Helper()
	p := s.process("before", setup{})
	p.add("job", spec, nil, opts...)
	p.cron.Start()
	s.until(until)
	p.end()
	s.forget()
}

// Nobody was up for five minutes. A job of eight seconds is due each ten seconds.
func TestStart_afterAStandstillRunsNoOldTickAtTheExpenseOfTheCurrentOne(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		opts []guardcron.Option
		old  int    // ticks from before the start that are run
		last string // of the ticks that are missed
	}{
		"no catch-up":    {nil, 0, "12:06:00"},
		"the newest":     {[]guardcron.Option{guardcron.WithCatchUp(1)}, 1, "12:05:50"},
		"the newest two": {[]guardcron.Option{guardcron.WithCatchUp(2)}, 2, "12:05:40"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				s.ranOnce("@every 10s", "2026-06-15T12:01:05Z")
				s.until("2026-06-15T12:06:05Z")
				for _, who := range []string{"a", "b"} {
					p := s.process(who, setup{})
					p.add("job", "@every 10s", hanging(8*time.Second), test.opts...)
					p.cron.Start()
				}
				s.until("2026-06-15T12:10:05Z")
				p := s.process("reader", setup{})
				var left []string
				ran := map[string]bool{}
				for _, r := range p.records("job") {
					if r.Result == guardcron.Ran && r.Who != "before" {
						ran[r.Tick.Format(time.TimeOnly)] = true
					} else if r.Who != "before" && r.Result != guardcron.Running {
						left = append(left, text(r))
					}
				}
				for at := instant(s.t, "2026-06-15T12:06:10Z"); at.Before(instant(s.t, "2026-06-15T12:09:50Z")); at = at.Add(10 * time.Second) {
					require.True(s.t, ran[at.Format(time.TimeOnly)], "a current tick was not run: %v of %v", at, ran)
				}
				old := 0
				for tick := range ran {
					if tick < "12:06:05" {
						old++
					}
				}
				require.Equal(s.t, test.old, old, "%v", p.outcomes("job"))
				slices.Sort(left)
				require.True(s.t, strings.HasPrefix(left[0], "12:01:10-"), left)
				require.True(s.t, strings.HasSuffix(left[len(left)-1], test.last+" missed"), left)
				// Those of the last minute are reported when no process can start them any more.
				require.LessOrEqual(s.t, len(left), 3)
			})
		})
	}
}

// A tick that a process has begun, and died in, is run again in time: also when its lease has
// ended before the next process is up.
func TestStart_runsWhatADeadProcessHasBegun(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		back string
		opts []guardcron.Option
		want []string
	}{
		"its lease is left":  {"2026-06-15T13:00:15Z", nil, []string{"13:00:00 lost", "13:00:00 ran"}},
		"its lease has gone": {"2026-06-15T13:00:45Z", nil, []string{"13:00:00 lost", "13:00:00 ran"}},
		"it is too late":     {"2026-06-15T13:02:00Z", nil, []string{"13:00:00 lost", "13:00:00 missed"}},
		"a day later":        {"2026-06-16T12:30:00Z", nil, []string{"13:00:00 lost"}},
		"and caught up with": {"2026-06-15T13:02:00Z", []guardcron.Option{guardcron.WithCatchUp(1)}, []string{"13:00:00 lost", "13:00:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				a := s.process("a", setup{})
				a.add("job", "0 * * * *", hanging(time.Minute))
				a.cron.Start()
				s.until("2026-06-15T13:00:05Z")
				a.die()
				s.until(test.back)
				b := s.process("b", setup{})
				b.add("job", "0 * * * *", nil, test.opts...)
				b.cron.Start()
				s.sleep(2 * time.Minute)
				got := slices.DeleteFunc(b.outcomes("job"), func(o string) bool { return !strings.HasPrefix(o, "13:00:00 ") })
				require.Equal(s.t, test.want, got)
				require.NotContains(s.t, b.outcomes("job"), "13:00:00 running")
			})
		})
	}
}

func TestRunNow_thatWasAbandonedDoesNotStayRunning(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		a := s.process("a", setup{})
		a.add("job", "0 * * * *", hanging(time.Minute))
		go func() { _ = a.RunNow(context.Background(), "job") }()
		s.sleep(5 * time.Second)
		require.Equal(s.t, []string{"by hand running"}, a.outcomes("job"))
		a.die()
		s.sleep(45 * time.Second)
		b := s.process("b", setup{})
		b.add("job", "0 * * * *", nil)
		b.cron.Start()
		s.sleep(time.Second)
		require.Equal(s.t, []string{"by hand lost"}, b.outcomes("job"))
	})
}

// The job is new. The process that has begun to count is ahead: by its clock, the tick that another
// one takes and dies in was before.
func TestStart_firstOneEverLosesNoTickThatAProcessHasBegun(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct{ counts, takes time.Duration }{
		"the one that counts is ahead":  {900 * time.Millisecond, -900 * time.Millisecond},
		"the one that takes it is":      {-900 * time.Millisecond, 900 * time.Millisecond},
		"neither is":                    {0, 0},
		"the one that takes it is late": {0, -900 * time.Millisecond},
	} {
		for _, begin := range []string{"2026-06-15T12:59:58.5Z", "2026-06-15T12:59:59.3Z", "2026-06-15T12:59:59.9Z", "2026-06-15T13:00:00.2Z"} {
			t.Run(title+", at "+begin, func(t *testing.T) {
				t.Parallel()
				onSite(t, begin, func(s *site) {
					counts := s.process("counts", setup{skew: test.counts})
					counts.add("job", "0 * * * *", nil)
					takes := s.process("takes", setup{skew: test.takes})
					takes.add("job", "0 * * * *", hanging(time.Hour/2))
					counts.cron.Start()
					s.sleep(time.Millisecond)
					takes.cron.Start()
					s.sleep(3 * time.Second)
					begun := len(s.ticks()) > 0
					takes.die()
					s.sleep(3 * time.Minute)
					var got []string
					for _, r := range counts.records("job") {
						if r.Tick.Equal(instant(s.t, "2026-06-15T13:00:00Z")) && (r.Who == "counts" || r.Result == guardcron.Lost) {
							got = append(got, string(r.Result))
						}
					}
					require.Equal(s.t, begun, len(got) > 0, "begun: %v, on record: %v", begun, counts.outcomes("job"))
					require.NotContains(s.t, counts.outcomes("job"), "13:00:00 running")
				})
			})
		}
	}
}

// A process dies before, between and after the calls by which it ends a run that was not
// successful. The tick is on record in any case, and it is run again only if it was not yet.
func TestRun_thatFailsIsOnRecordWheneverItsProcessDies(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func() error{
		"an error": func() error { return errors.New("no") },
		"a panic":  func() error { runtime.Goexit(); return nil },
	} {
		for calls := range 4 { // which the store gets before it dies
			t.Run(fmt.Sprint(name, " after ", calls), func(t *testing.T) {
				t.Parallel()
				onSite(t, noon, func(s *site) {
					job := func(p *process) func(context.Context) error {
						return func(context.Context) error {
							if p.who == "a" {
								p.line.left.Store(int64(calls) + 1)
								p.cron.Stop()
							}
							return ends()
						}
					}
					a := s.process("a", setup{skew: 900 * time.Millisecond})
					a.add("job", "* * * * *", job(a))
					b := s.process("b", setup{})
					b.add("job", "* * * * *", job(b))
					a.cron.Start()
					b.cron.Start()
					s.until("2026-06-15T12:03:30Z")
					of := map[string]int{}
					for _, outcome := range b.outcomes("job") {
						of[outcome]++
					}
					require.Equal(s.t, 1, of["12:01:00 failed"], "%v", of)
					again := 0
					for _, tick := range s.ticks() {
						if tick == "2026-06-15T12:01:00Z" {
							again++
						}
					}
					want := 1
					if calls == 0 {
						want = 2
					}
					require.Equal(s.t, want, again, "runs of the tick")
				})
			})
		}
	}
}

// A run takes longer than a period. Old ticks run first, and then Skip applies again: soon each run
// is for a tick that has just come.
func TestLong_catchUpLeavesSkipAndTheDeadlineOnForARunLongerThanItsPeriod(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	for title, test := range map[string]struct {
		spec  string
		takes time.Duration
		opts  []guardcron.Option
	}{
		"no catch-up":      {"0 * * * * *", 95 * time.Second, nil},
		"Newest":           {"0 * * * * *", 95 * time.Second, []guardcron.Option{guardcron.WithCatchUp(1)}},
		"UpTo(3)":          {"0 * * * * *", 74 * time.Second, []guardcron.Option{guardcron.WithCatchUp(3)}},
		"UpTo(3) and Wait": {"0 * * * * *", 74 * time.Second, []guardcron.Option{guardcron.WithCatchUp(3), guardcron.WithOverlap(guardcron.Wait)}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				of := setup{cron: []cron.Option{cron.WithSeconds()}}
				before := s.process("before", of)
				before.add("job", test.spec, nil)
				before.cron.Start()
				s.until("2026-06-15T12:01:30Z")
				before.end()
				s.until("2026-06-15T12:10:30Z")
				s.forget()
				s.three(of, test.spec, hanging(test.takes), test.opts...)
				s.until("2026-06-15T12:40:00Z")
				s.forget()
				s.until("2026-06-15T12:59:59Z")
				late := time.Second // the Cron of the first process fires early
				if strings.HasSuffix(title, "Wait") {
					late = time.Minute
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				require.Greater(s.t, len(s.runs), 8)
				for _, r := range s.runs {
					require.WithinDuration(s.t, instant(s.t, r.tick), instant(s.t, r.at), late)
				}
			})
		})
	}
}

// One old run of a job that is due each hour takes three hours. The current ticks do not queue up:
// the newest one waits for its end.
func TestCatchUp_oneCurrentTickWaitsForALongRun(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		s.ranOnce("0 * * * *", "2026-06-15T13:00:30Z")
		s.until("2026-06-15T15:30:00Z")
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", func(context.Context) error {
			if len(s.ticks()) == 1 {
				time.Sleep(3 * time.Hour) // virtual time
			}
			return nil
		}, guardcron.WithCatchUp(1))
		p.cron.Start()
		s.until("2026-06-15T19:00:30Z")
		require.Equal(s.t, []string{"13:00:00 ran", "14:00:00 missed", "15:00:00 ran", "16:00:00 skipped", "17:00:00 skipped", "18:00:00 ran", "19:00:00 ran"},
			p.outcomes("job"))
	})
}
