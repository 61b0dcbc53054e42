package guardcron_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// key is the name in the store under which the records of a job are.
const key = "cron:job"

func TestRecords_ofRuns(t *testing.T) {
	t.Parallel()
	recovers := cron.WithChain(cron.Recover(cron.DiscardLogger))
	for title, test := range map[string]struct {
		f       func(context.Context) error
		opts    []guardcron.Option
		outcome guardcron.Result
		reason  string
		took    time.Duration
	}{
		"it ran":                 {lasting(7 * time.Second), nil, guardcron.Ran, "", 7 * time.Second},
		"it failed":              {func(context.Context) error { return errJob }, nil, guardcron.Failed, errJob.Error(), 0},
		"it panicked":            {func(context.Context) error { panic("at the disco") }, nil, guardcron.Failed, "it did not return: it panicked, or ended its goroutine", 0},
		"it ended its goroutine": {func(context.Context) error { runtime.Goexit(); return nil }, nil, guardcron.Failed, "it did not return: it panicked, or ended its goroutine", 0},
		"it ran for too long": {lasting(time.Hour), []guardcron.Option{guardcron.WithMaxHold(9 * time.Second)}, guardcron.Lost,
			`guard: lease on "cron:job" was lost: max_hold`, 9 * time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var o recorder
				p := s.process("web-1 pid 42", setup{cron: []cron.Option{recovers}})
				p.add("job", "0 * * * *", test.f, append(test.opts, guardcron.WithObserver(o.record))...)
				p.cron.Start()
				s.until("2026-06-15T13:30:00Z")
				records := p.records("job")
				require.Len(s.t, records, 1)
				r := records[0]
				require.NotZero(s.t, r.Fence)
				at := instant(s.t, "2026-06-15T13:00:00Z")
				want := guardcron.Record{Job: "job", Tick: at, Result: test.outcome, Who: "web-1 pid 42", Fence: r.Fence, Start: at, End: at.Add(test.took), Reason: test.reason}
				r.Start, r.End = r.Start.Round(time.Second), r.End.Round(time.Second)
				require.Equal(s.t, want, r)
				require.Equal(s.t, records[0], o.records[0], "observers receive the same")
				require.Len(s.t, o.records, 1, "and nothing of its beginning")
			})
		})
	}
}

func TestRecords_ofARunUnderWay(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", lasting(2*time.Minute))
		p.cron.Start()
		s.until("2026-06-15T13:01:00Z")
		r := p.records("job")
		require.Len(s.t, r, 1)
		require.Equal(s.t, guardcron.Running, r[0].Result)
		require.Equal(s.t, instant(s.t, "2026-06-15T13:00:00Z"), r[0].Start)
		require.Zero(s.t, r[0].End)
		require.Equal(s.t, "a", r[0].Who)
		s.until("2026-06-15T13:30:00Z")
		require.Equal(s.t, []string{"13:00:00 ran"}, p.outcomes("job"), "its end takes the place of its beginning")
	})
}

func TestRecords_ofALostLease(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o recorder
		p := s.process("a", setup{guard: []guard.Option{guard.WithTTL(10 * time.Second)}})
		p.add("job", "0 * * * *", lasting(20*time.Minute), guardcron.WithObserver(o.record))
		p.cron.Start()
		s.until("2026-06-15T13:00:05Z")
		p.line.cut.Store(true)
		s.until("2026-06-15T13:05:00Z")
		require.Equal(s.t, []string{"13:00:00 lost"}, o.outcomes())
		require.Contains(s.t, o.records[0].Reason, "expired")
		require.Less(s.t, o.records[0].End.Sub(o.records[0].Start), 20*time.Second)
	})
}

func TestRecords_ofWhatDidNotRun(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", lasting(70*time.Second))
		p.cron.Start()
		s.until("2026-06-15T12:02:30Z")
		p.end()
		s.until("2026-06-15T12:04:30Z")
		p = s.process("b", setup{})
		p.add("job", "* * * * *", nil, guardcron.WithStartDeadline(20*time.Second))
		p.cron.Start()
		s.until("2026-06-15T12:04:40Z")
		records := p.records("job")
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 skipped", "12:03:00-12:04:00 missed"}, p.outcomes("job"), "by their ticks")
		missed, skipped := records[0], records[1]
		require.Equal(s.t, "b", missed.Who)
		require.Equal(s.t, 2, missed.Ticks)
		require.Equal(s.t, "nobody has finished them, or been there to start them, until 30s after the last one", missed.Reason)
		require.Equal(s.t, instant(s.t, "2026-06-15T12:04:30Z"), missed.Start)
		require.Equal(s.t, "a", skipped.Who)
		require.Contains(s.t, skipped.Reason, `"cron:job" is busy, held by "cron:job@2026-06-15T12:01:00Z a"`)
	})
}

func TestRecords_newestFirstAndAtMostN(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:06:30Z")
		all := p.records("job")
		require.Len(s.t, all, 6)
		for i, r := range all {
			require.Equal(s.t, 6-i, r.Tick.Minute())
		}
		for n := range 8 {
			some, err := p.Records(context.Background(), "job", n)
			require.NoError(s.t, err)
			require.Equal(s.t, all[:min(n, 6)], append([]guardcron.Record{}, some...))
		}
		some, err := p.Records(context.Background(), "job", -1)
		require.NoError(s.t, err)
		require.Empty(s.t, some)
		some, err = p.Records(context.Background(), "job", driver.MaxEntries)
		require.NoError(s.t, err)
		require.Len(s.t, some, 6)
	})
}

func TestWithHistory_boundsTheRecords(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		all := s.three(setup{}, "* * * * *", lasting(time.Second), guardcron.WithHistory(5))
		s.until("2026-06-15T13:30:30Z")
		require.Equal(s.t, []string{"13:26:00 ran", "13:27:00 ran", "13:28:00 ran", "13:29:00 ran", "13:30:00 ran"}, all[0].outcomes("job"))
		entries, err := driver.Entries(context.Background(), s.store, key, driver.MaxEntries)
		require.NoError(s.t, err)
		require.Len(s.t, entries, 10, "the beginning and the end of each")
	})
}

func TestRecords_ofAJobThatIsRegisteredElsewhere(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:01:30Z")
		other := s.process("b", setup{})
		require.Equal(s.t, p.records("job"), other.records("job"))
		require.Equal(s.t, "job", other.records("job")[0].Job)
		require.Empty(s.t, other.records("nothing"))
		_, err := other.Records(context.Background(), "{job}", 10)
		require.ErrorContains(s.t, err, `guardcron: records of job "{job}"`)
		other.line.cut.Store(true)
		_, err = other.Records(context.Background(), "job", 10)
		require.ErrorIs(s.t, err, guard.ErrStore)
		require.ErrorContains(s.t, err, `guardcron: records of job "job"`)
	})
}

// A ledger may have in it what others wrote.
func TestRecords_leaveOutWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:02:30Z")
		for i, text := range []string{"garbage", "{}", "null", "[1]", `"ran"`, `{"tick":"now","result":"ran"}`, `{"result":7}`, "\xff\x00", strings.Repeat("[", 60000), `{"level":"info"}`} {
			entry := driver.Entry{At: time.Now().Add(s.base).UnixMilli() + int64(i), Record: []byte(text)}
			require.NoError(s.t, s.store.Append(context.Background(), key, entry, 1000))
		}
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran"}, p.outcomes("job"))
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran"}, p.outcomes("job"))
		s.until("2026-06-15T12:03:30Z")
		require.Len(s.t, p.outcomes("job"), 3, "and go on")
	})
}

func TestRecords_cutHugeErrors(t *testing.T) {
	t.Parallel()
	for title, text := range map[string]string{
		"text":           strings.Repeat("no ", 1<<20),
		"runes":          strings.Repeat("é", 1<<16) + "x",
		"control bytes":  strings.Repeat("\x01", 1<<20),
		"no UTF-8":       strings.Repeat("\xff", 1<<20),
		"what HTML does": strings.Repeat("<", 1<<20),
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var o recorder
				p := s.process("a", setup{})
				p.add("job", "* * * * *", func(context.Context) error { return errors.New(text) }, guardcron.WithObserver(o.record))
				p.cron.Start()
				s.until("2026-06-15T12:01:30Z")
				r := p.records("job")
				require.Len(s.t, r, 1)
				require.Equal(s.t, guardcron.Failed, r[0].Result)
				require.NotEmpty(s.t, r[0].Reason)
				require.LessOrEqual(s.t, len(r[0].Reason), 3*4096)
				require.Equal(s.t, text, o.records[0].Reason, "observers in this process receive all of it")
				entries, err := driver.Entries(context.Background(), s.store, key, 1)
				require.NoError(s.t, err)
				require.LessOrEqual(s.t, len(entries[0].Record), driver.MaxEntry)
			})
		})
	}
}

func TestRecord_asJSON(t *testing.T) {
	t.Parallel()
	at := instant(t, "2026-06-15T13:00:00Z")
	text, err := json.Marshal(guardcron.Record{Job: "job", Tick: at, Result: guardcron.Ran, Who: "a", Fence: 7, Start: at, End: at.Add(time.Second)})
	require.NoError(t, err)
	require.JSONEq(t, `{"tick":"2026-06-15T13:00:00Z","result":"ran","who":"a","fence":7,"start":"2026-06-15T13:00:00Z","end":"2026-06-15T13:00:01Z"}`, string(text))
}

// Observers report and decide nothing: not even by a panic.
func TestObservers_areAllCalledAndContained(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var mu sync.Mutex // two ticks may be reported at the same time
		var received []string
		observer := func(name string, panics bool) func(guardcron.Record) {
			return func(r guardcron.Record) {
				mu.Lock()
				received = append(received, fmt.Sprintf("%s %s %s", name, r.Tick.Format(time.TimeOnly), r.Result))
				mu.Unlock()
				if panics {
					panic(name)
				}
			}
		}
		p := s.process("a", setup{jobs: []guardcron.Option{guardcron.WithObserver(observer("1", true)), onMissed(observer("missed 1", true))}})
		p.add("job", "0 * * * *", nil, guardcron.WithObserver(observer("2", false)), onMissed(observer("missed 2", false)))
		p.cron.Start()
		s.until("2026-06-15T13:30:00Z")
		require.Equal(s.t, []string{"1 13:00:00 ran", "2 13:00:00 ran"}, received)
		<-p.cron.Stop().Done()
		s.until("2026-06-15T14:30:00Z")
		p.cron.Start()
		s.until("2026-06-15T15:30:00Z")
		slices.Sort(received)
		require.Equal(s.t, []string{"1 13:00:00 ran", "1 14:00:00 missed", "1 15:00:00 ran", "2 13:00:00 ran", "2 14:00:00 missed", "2 15:00:00 ran",
			"missed 1 14:00:00 missed", "missed 2 14:00:00 missed"}, received)
		require.ElementsMatch(s.t, []string{"13:00:00 ran", "14:00:00 missed", "15:00:00 ran"}, p.outcomes("job"))
	})
}

// Observers also receive a record that cannot be written.
func TestObservers_receiveWhatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o recorder
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", lasting(5*time.Second), guardcron.WithObserver(o.record))
		p.cron.Start()
		s.until("2026-06-15T13:00:01Z")
		p.line.cut.Store(true)
		s.until("2026-06-15T13:30:00Z")
		require.Equal(s.t, []string{"13:00:00 ran"}, o.outcomes())
	})
}

// A log that is full forgets the beginning of a run before its end: no process takes the run for
// one whose process has died.
func TestRecords_thatAreForgottenLeaveNoRunUnderWay(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		all := s.three(setup{}, "* * * * *", lasting(10*time.Second), guardcron.WithHistory(1))
		s.until("2026-06-15T12:02:05Z")
		late := s.process("late", setup{})
		late.add("job", "* * * * *", lasting(10*time.Second), guardcron.WithHistory(1))
		late.cron.Start()
		s.sleep(time.Second)
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 running"}, all[0].outcomes("job"))
	})
}
