package guardcron_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
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
		"the newest":     {[]guardcron.Option{guardcron.WithCatchUp(guardcron.Newest)}, 1, "12:05:50"},
		"the newest two": {[]guardcron.Option{guardcron.WithCatchUp(guardcron.UpTo(2))}, 2, "12:05:40"},
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
					if r.Outcome == guardcron.Ran && r.Who != "before" {
						ran[r.Tick.Format(time.TimeOnly)] = true
					} else if r.Who != "before" && r.Outcome != guardcron.Running {
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
				require.Equal(s.t, test.old, old)
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
		"and caught up with": {"2026-06-15T13:02:00Z", []guardcron.Option{guardcron.WithCatchUp(guardcron.Newest)}, []string{"13:00:00 lost", "13:00:00 ran"}},
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
						if r.Tick.Equal(instant(s.t, "2026-06-15T13:00:00Z")) && (r.Who == "counts" || r.Outcome == guardcron.Lost) {
							got = append(got, string(r.Outcome))
						}
					}
					require.Equal(s.t, begun, len(got) > 0, "begun: %v, on record: %v", begun, counts.outcomes("job"))
					require.NotContains(s.t, counts.outcomes("job"), "13:00:00 running")
				})
			})
		}
	}
}

// The store is away from before the tick of a job that is due once a month until after its
// deadline.
func TestOutage_thatOutlastsTheDeadlineIsNoticedWhenItIsOver(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		opts []guardcron.Option
		over string
		want []string
	}{
		"in time":         {nil, "2026-07-01T00:00:40Z", []string{"00:00:00 ran"}},
		"too late":        {nil, "2026-07-01T00:03:00Z", []string{"00:00:00 missed"}},
		"much too late":   {nil, "2026-07-01T05:00:00Z", []string{"00:00:00 missed"}},
		"with a catch-up": {[]guardcron.Option{guardcron.WithCatchUp(guardcron.Newest)}, "2026-07-01T00:03:00Z", []string{"00:00:00 ran"}},
		"a long deadline": {[]guardcron.Option{guardcron.WithStartDeadline(time.Hour)}, "2026-07-01T00:50:00Z", []string{"00:00:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, "2026-06-30T23:59:30Z", func(s *site) {
				all := s.three(setup{}, "0 0 1 * *", nil, test.opts...)
				s.sleep(time.Second)
				for _, p := range all {
					p.line.cut.Store(true)
				}
				s.until(test.over)
				for _, p := range all {
					p.line.cut.Store(false)
				}
				s.sleep(15 * time.Second)
				require.Equal(s.t, test.want, all[0].outcomes("job"))
			})
		})
	}
}

// A deployment changes when a job is due.
func TestSchedule_thatChangesHasMissedNothing(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		was, is, back, until string
		want                 []string
	}{
		"earlier on the same day": {"0 3 * * *", "0 12 * * *", "2026-06-16T14:00:00Z", "2026-06-17T13:00:00Z", []string{"03:00:00 ran", "12:00:00 ran"}},
		"after a week":            {"0 3 * * *", "0 * * * *", "2026-06-23T14:30:00Z", "2026-06-23T15:30:00Z", []string{"03:00:00 ran", "15:00:00 ran"}},
		"the same in other words": {"0 3 * * *", "00 03 * * *", "2026-06-17T14:00:00Z", "2026-06-18T04:00:00Z", []string{"03:00:00 ran", "03:00:00 missed", "03:00:00 ran"}},
		"another location":        {"0 3 * * *", "CRON_TZ=Asia/Tokyo 0 3 * * *", "2026-06-16T19:00:00Z", "2026-06-17T04:00:00Z", []string{"03:00:00 ran"}},
	} {
		for catchUp, opts := range map[string][]guardcron.Option{"": nil, ", with catch-up": {guardcron.WithCatchUp(guardcron.Newest)}} {
			t.Run(title+catchUp, func(t *testing.T) {
				t.Parallel()
				onSite(t, noon, func(s *site) {
					s.ranOnce(test.was, "2026-06-16T10:00:00Z", opts...)
					s.until(test.back)
					p := s.process("a", setup{})
					p.add("job", test.is, nil, opts...)
					p.cron.Start()
					s.until(test.until)
					want := slices.Clone(test.want)
					if catchUp != "" {
						for i := range want {
							want[i] = strings.ReplaceAll(want[i], "missed", "ran")
						}
					}
					require.Equal(s.t, want, p.outcomes("job"))
				})
			})
		}
	}
}

// A change is a change also if nobody was up at the first tick after it.
func TestSchedule_thatHasChangedIsMissedFromThenOn(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		s.ranOnce("0 3 * * *", "2026-06-16T10:00:00Z")
		s.until("2026-06-16T14:00:00Z")
		s.ranOnce("0 12 * * *", "2026-06-16T15:00:00Z")
		s.until("2026-06-17T15:00:00Z")
		p := s.process("a", setup{})
		p.add("job", "0 12 * * *", nil)
		p.cron.Start()
		s.sleep(time.Second)
		require.Equal(s.t, []string{"03:00:00 ran", "12:00:00 missed"}, p.outcomes("job"))
	})
}

// All processes of a job that is due each minute are down for half an hour.
func TestPause_whileNobodyIsUpIsNoAlarm(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		pause, resume string
		want          []string
	}{
		"before and still":     {"2026-06-15T12:01:30Z", "", []string{"12:01:00 ran", "12:02:00 skipped", "12:03:00-12:34:00 skipped"}},
		"before, and ended":    {"2026-06-15T12:01:30Z", "2026-06-15T12:20:30Z", []string{"12:01:00 ran", "12:02:00 skipped", "12:03:00-12:20:00 skipped", "12:21:00-12:34:00 missed"}},
		"meanwhile":            {"2026-06-15T12:10:30Z", "2026-06-15T12:20:30Z", []string{"12:01:00 ran", "12:02:00 ran", "12:03:00-12:10:00 missed", "12:11:00-12:20:00 skipped", "12:21:00-12:34:00 missed"}},
		"meanwhile, and still": {"2026-06-15T12:10:30Z", "", []string{"12:01:00 ran", "12:02:00 ran", "12:03:00-12:10:00 missed", "12:11:00-12:34:00 skipped"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				ctx := context.Background()
				admin := s.process("admin", setup{})
				p := s.process("a", setup{})
				p.add("job", "* * * * *", nil)
				p.cron.Start()
				turned := map[string]func(context.Context, string) error{test.pause: admin.Pause, test.resume: admin.Resume}
				delete(turned, "")
				steps := []string{"2026-06-15T12:02:30Z", "2026-06-15T12:34:30Z"}
				for at := range turned {
					steps = append(steps, at)
				}
				slices.Sort(steps)
				for _, at := range steps {
					s.until(at)
					switch {
					case turned[at] != nil:
						require.NoError(s.t, turned[at](ctx, "job"))
					case at == "2026-06-15T12:02:30Z":
						p.end()
					default:
						p = s.process("b", setup{})
						p.add("job", "* * * * *", nil, guardcron.WithStartDeadline(20*time.Second))
						p.cron.Start()
						s.sleep(25 * time.Second)
					}
				}
				require.Equal(s.t, test.want, p.outcomes("job"))
			})
		})
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	for title, remove := range map[string]func(t *testing.T, p *process, id cron.EntryID){
		"by Jobs":     func(t *testing.T, p *process, _ cron.EntryID) { require.NoError(t, p.Remove("job")) },
		"by the Cron": func(_ *testing.T, p *process, id cron.EntryID) { p.cron.Remove(id) },
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				ctx := context.Background()
				p := s.process("a", setup{})
				id := p.add("job", "* * * * *", hanging(20*time.Second))
				p.cron.Start()
				s.until("2026-06-15T12:02:10Z")
				remove(s.t, p, id)
				require.False(s.t, p.cron.Entry(id).Valid())
				require.EqualError(s.t, p.RunNow(ctx, "job"), `guardcron: there is no job "job"`)
				require.EqualError(s.t, p.Remove("job"), `guardcron: there is no job "job"`)
				s.until("2026-06-15T12:04:30Z")
				require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran"}, p.outcomes("job"), "a run that has begun continues")
				p.add("job", "30 * * * *", nil)
				require.NoError(s.t, p.RunNow(ctx, "job"))
				s.until("2026-06-15T12:30:30Z")
				require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran", "by hand ran", "12:30:00 ran"}, p.outcomes("job"))
				require.NoError(s.t, p.Close(ctx))
			})
		})
	}
}

func TestRemove_ofAWrappedJobAndWhileItWaits(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		other := s.process("other", setup{})
		other.add("job", "* * * * *", hanging(10*time.Minute))
		other.cron.Start()
		s.until("2026-06-15T12:01:01Z")
		p := s.wrapped("* * * * *", nil, guardcron.WithBusy(guardcron.Wait), guardcron.WithStartDeadline(time.Hour))
		s.until("2026-06-15T12:02:10Z")
		require.NoError(s.t, p.Remove("job"))
		begun := time.Now()
		require.NoError(s.t, p.Close(context.Background()))
		require.Less(s.t, time.Since(begun), time.Second, "what waited for the job has left")
	})
}

// The usual way to end a Cron, on a process that waits for a tick which another one runs.
func TestCronStop_doesNotWaitForATickThatRunsElsewhere(t *testing.T) {
	t.Parallel()
	for title, opts := range map[string][]guardcron.Option{
		"Skip": nil, "Wait": {guardcron.WithBusy(guardcron.Wait), guardcron.WithStartDeadline(2 * time.Minute)}, "Allow": {guardcron.WithBusy(guardcron.Allow)},
	} {
		for _, wrapped := range []bool{false, true} {
			name := title
			if wrapped {
				name += ", wrapped"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				onSite(t, noon, func(s *site) {
					runs := s.process("runs", setup{skew: time.Second})
					runs.add("job", "* * * * *", hanging(10*time.Minute), opts...)
					runs.cron.Start()
					s.until("2026-06-15T12:01:00Z")
					var p *process
					if wrapped {
						p = s.wrapped("* * * * *", nil, opts...)
					} else {
						p = s.process("watches", setup{})
						p.add("job", "* * * * *", nil, opts...)
						p.cron.Start()
					}
					s.until("2026-06-15T12:02:10Z")
					begun := time.Now()
					<-p.cron.Stop().Done()
					require.Zero(s.t, time.Since(begun))
				})
			})
		}
	}
}

// After that, a process takes over nothing: its program may have closed what the job needs.
func TestCronStop_endsTakeovers(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		all := s.three(setup{}, "0 * * * *", hanging(20*time.Second))
		s.until("2026-06-15T13:00:01Z")
		<-all[0].cron.Stop().Done()
		<-all[1].cron.Stop().Done()
		all[2].die()
		s.until("2026-06-15T13:10:00Z")
		require.Len(s.t, s.ticks(), 1)
	})
}

func TestClose_returnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", hanging(10*time.Minute))
		p.cron.Start()
		s.until("2026-06-15T12:01:01Z")
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		err := p.Close(ctx)
		require.ErrorIs(s.t, err, context.DeadlineExceeded)
		require.ErrorContains(s.t, err, "1 have not returned")
		require.WithinRange(s.t, time.Now(), begun.Add(5*time.Second), begun.Add(5100*time.Millisecond))
		s.until("2026-06-15T12:12:00Z")
		require.NoError(s.t, p.Close(context.Background()), "it has returned")
	})
}

// An outage of three hours of a job that is due each minute must not push out what is on record.
func TestRecords_ofAnOutageAreOne(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var missed told
		all := s.three(setup{}, "* * * * *", nil, guardcron.WithHistory(10), onMissed(missed.tell))
		s.until("2026-06-15T12:08:30Z")
		for _, p := range all {
			p.line.cut.Store(true)
		}
		s.until("2026-06-15T15:08:30Z")
		for _, p := range all {
			p.line.cut.Store(false)
		}
		s.until("2026-06-15T15:10:30Z")
		want := []string{"12:05:00 ran", "12:06:00 ran", "12:07:00 ran", "12:08:00 ran", "12:09:00-15:07:00 missed", "15:08:00 ran", "15:09:00 ran", "15:10:00 ran"}
		got := all[0].outcomes("job")
		require.Equal(s.t, want, got[len(got)-len(want):])
		require.Equal(s.t, []string{"12:09:00-15:07:00 missed"}, missed.outcomes())
		require.Equal(s.t, 179, missed.records[0].Ticks)
	})
}

// What could not be written down is written when the store answers.
func TestRecords_areWrittenAfterAnOutage(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", lasting(5*time.Second))
		p.cron.Start()
		s.until("2026-06-15T13:00:03Z")
		p.line.cut.Store(true)
		s.until("2026-06-15T13:00:20Z")
		p.line.cut.Store(false)
		s.sleep(15 * time.Second)
		require.Equal(s.t, []string{"13:00:00 ran"}, p.outcomes("job"))
	})
}

// Runs by hand do not push out what is known of ticks.
func TestRunNow_leavesTheRecordsOfTicks(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		opts := guardcron.WithHistory(1)
		s.ranOnce("0 * * * *", "2026-06-15T13:00:30Z", opts)
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", nil, opts)
		for range 5 {
			s.sleep(time.Second)
			require.NoError(s.t, p.RunNow(context.Background(), "job"))
		}
		s.until("2026-06-15T14:30:00Z")
		p.cron.Start()
		s.sleep(time.Second)
		require.Contains(s.t, p.outcomes("job"), "14:00:00 missed")
		entries, err := s.store.Entries(context.Background(), "cron:job@by-hand", driver.MaxEntries)
		require.NoError(s.t, err)
		require.LessOrEqual(s.t, len(entries), 2)
	})
}

// A run that takes over passes the chain of the Cron, and cron.Stop waits for it.
func TestTakeover_runsAsTheCronRunsJobs(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var c caught
		a := s.process("a", setup{skew: time.Second})
		a.add("job", "0 * * * *", hanging(time.Minute))
		a.cron.Start()
		b := s.process("b", setup{cron: c.cron()})
		b.add("job", "0 * * * *", func(context.Context) error {
			time.Sleep(20 * time.Second) // virtual time
			panic(errPanic)
		})
		b.cron.Start()
		s.until("2026-06-15T13:00:05Z")
		a.die()
		s.until("2026-06-15T13:00:40Z")
		require.Len(s.t, s.ticks(), 2)
		require.Len(s.t, b.cron.Entries(), 1, "nothing is left in the Cron")
		begun := time.Now()
		<-b.cron.Stop().Done()
		require.Greater(s.t, time.Since(begun), 5*time.Second)
		require.Equal(s.t, []error{errPanic}, c.errs)
		synctest.Wait()
		require.Contains(s.t, b.outcomes("job"), "13:00:00 panicked")
	})
}
