package guardcron_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// here returns Jobs in real time, whose Cron is not started.
func here(t *testing.T) (*guardcron.Jobs, *cron.Cron) {
	t.Helper()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	c := cron.New()
	jobs, err := guardcron.New(g, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, jobs.Close(context.Background()))
		require.NoError(t, g.Close(context.Background()))
	})
	return jobs, c
}

// settings returns those that an error names.
func settings(err error) []string {
	var named []string
	var setting *guard.SettingError
	switch e := err.(type) { //nolint:errorlint // it walks the tree
	case *guard.SettingError:
		return []string{e.Setting}
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			named = append(named, settings(err)...)
		}
	case interface{ Unwrap() error }:
		return settings(e.Unwrap())
	}
	if named == nil && errors.As(err, &setting) {
		named = []string{setting.Setting}
	}
	return named
}

// A refusal is a registration that must fail.
type refusal struct {
	name, spec string
	f          func(context.Context) error
	opts       []guardcron.Option
	setting    string // that the error names, if it is a *guard.SettingError
	says       string
}

func refusals() map[string]refusal {
	of := func(opts ...guardcron.Option) []guardcron.Option { return opts }
	const good, daily = "report", "0 3 * * *"
	return map[string]refusal{
		"no name":                      {"", daily, none, nil, "name", "must not be empty"},
		"a name with an @":             {"report@home", daily, none, nil, "name", "@"},
		"a name with braces":           {"{report}", daily, none, nil, "", "brace"},
		"a name that is too long":      {strings.Repeat("n", 129), daily, none, nil, "WithName", "128 bytes"},
		"a name with a NUL":            {"re\x00port", daily, none, nil, "WithName", "must not contain"},
		"the name of another job":      {"there", daily, none, nil, "name", "another job"},
		"no spec":                      {good, "", none, nil, "spec", "empty spec"},
		"a spec that is no spec":       {good, "now and then", none, nil, "spec", "expected exactly 5 fields"},
		"a minute that does not exist": {good, "60 * * * *", none, nil, "spec", "above maximum"},
		"a zone without a schedule":    {good, "CRON_TZ=America/New_York", none, nil, "spec", "no schedule"},
		"a TZ without a schedule":      {good, "TZ=UTC", none, nil, "spec", "no schedule"},
		"a zone that does not exist":   {good, "CRON_TZ=Mars/Olympus 0 3 * * *", none, nil, "spec", "bad location"},
		"a delay that is none":         {good, "@every now", none, nil, "spec", "failed to parse duration"},
		"a schedule that never fires":  {good, "0 0 30 2 *", none, nil, "schedule", "never fires"},
		"no function":                  {good, daily, nil, nil, "f", "must not be nil"},
		"a nil option":                 {good, daily, none, of(nil), "Option", "must not be nil"},
		"no deadline":                  {good, daily, none, of(guardcron.WithStartDeadline(-time.Second)), "WithStartDeadline", "positive"},
		"a run without end":            {good, daily, none, of(guardcron.WithMaxHold(6 * 366 * 24 * time.Hour)), "WithOnce", "ten years"},
		"no run":                       {good, daily, none, of(guardcron.WithMaxHold(-1)), "WithMaxHold", "negative"},
		"an overlap below all":         {good, daily, none, of(guardcron.WithOverlap(guardcron.Skip - 1)), "WithOverlap", "Skip, Wait and Allow"},
		"an overlap above all":         {good, daily, none, of(guardcron.WithOverlap(guardcron.Allow + 1)), "WithOverlap", "Skip, Wait and Allow"},
		"less than no catch-up":        {good, daily, none, of(guardcron.WithCatchUp(-1)), "WithCatchUp", "from 0 to 1000"},
		"more catch-up than is wise":   {good, daily, none, of(guardcron.WithCatchUp(1001)), "WithCatchUp", "from 0 to 1000"},
		"a negative jitter":            {good, daily, none, of(guardcron.WithJitter(-1)), "WithJitter", "negative"},
		"a jitter of a whole period":   {good, "0,20 * * * *", none, of(guardcron.WithJitter(20 * time.Minute)), "WithJitter", "time between two ticks, 20m0s"},
		"no records":                   {good, daily, none, of(guardcron.WithHistory(0)), "WithHistory", "from 1 to 3000"},
		"too many records":             {good, daily, none, of(guardcron.WithHistory(3001)), "WithHistory", "from 1 to 3000"},
		"an observer that is nil":      {good, daily, none, of(guardcron.WithObserver(nil)), "WithObserver", "must not be nil"},
		"a bad TTL":                    {good, daily, none, of(guardcron.WithLease(guard.WithTTL(0))), "WithTTL", "at least"},
		"a nil option of the leases":   {good, daily, none, of(guardcron.WithLease(nil)), "Option", "must not be nil"},
		"a hold longer than the run": {good, daily, none, of(guardcron.WithMaxHold(time.Second), guardcron.WithLease(guard.WithMinHold(time.Minute))),
			"WithMinHold", "WithMaxHold"},
	}
}

func TestAddFunc_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for title, r := range refusals() {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			jobs, c := here(t)
			_, err := jobs.AddFunc("there", "@hourly", none)
			require.NoError(t, err)
			id, err := jobs.AddFunc(r.name, r.spec, r.f, r.opts...)
			require.Error(t, err)
			require.Zero(t, id)
			require.ErrorContains(t, err, "guardcron: job "+quoted(r.name)+": ")
			require.ErrorContains(t, err, r.says)
			if r.setting != "" {
				require.Equal(t, []string{r.setting}, settings(err))
			} else {
				var key *guard.KeyError
				require.ErrorAs(t, err, &key)
			}
			require.Len(t, c.Entries(), 1, "it was refused, and nothing is left in the Cron")
			if r.name != "there" {
				require.ErrorContains(t, jobs.RunNow(t.Context(), r.name), "there is no job", "nor among the Jobs")
			}
		})
	}
}

func quoted(s string) string {
	if s == "re\x00port" {
		return `"re\x00port"`
	}
	return `"` + s + `"`
}

// A spec is parsed by the Cron, which may be running meanwhile.
func TestAddFunc_leavesNothingInARunningCron(t *testing.T) {
	t.Parallel()
	jobs, c := here(t)
	c.Start()
	defer func() { <-c.Stop().Done() }()
	for title, r := range refusals() {
		if title == "the name of another job" {
			continue
		}
		_, err := jobs.AddFunc(r.name, r.spec, r.f, r.opts...)
		require.Error(t, err, title)
		require.Empty(t, c.Entries(), title)
	}
	id, err := jobs.AddFunc("report", "@daily", none)
	require.NoError(t, err)
	require.Equal(t, id, c.Entry(id).ID)
	require.Len(t, c.Entries(), 1)
}

func TestSchedule_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	jobs, c := here(t)
	_, err := jobs.Schedule("report", nil, none)
	require.Equal(t, []string{"schedule"}, settings(err))
	require.ErrorContains(t, err, `job "report"`)
	_, err = jobs.Schedule("", nil, nil, nil, guardcron.WithHistory(0))
	require.ElementsMatch(t, []string{"name", "schedule", "f", "Option", "WithHistory"}, settings(err), "all in one error")
	require.Empty(t, c.Entries())
}

func TestAddFunc_afterClose(t *testing.T) {
	t.Parallel()
	jobs, c := here(t)
	require.NoError(t, jobs.Close(t.Context()))
	_, err := jobs.AddFunc("report", "@daily", none)
	require.ErrorIs(t, err, guard.ErrClosed)
	require.ErrorContains(t, err, `job "report"`)
	require.Empty(t, c.Entries())
	require.NoError(t, jobs.Close(t.Context()), "a second time")
}

func TestNew_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	forgetful, err := guard.New(noLedger{&guardtest.Scripted{Inner: memory.New()}}, guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, forgetful.Close(context.Background())) })
	c := cron.New()
	for title, test := range map[string]struct {
		guard *guard.Guard
		cron  *cron.Cron
		opts  []guardcron.Option
		named []string
	}{
		"no guard":               {nil, c, nil, []string{"guard"}},
		"no cron":                {g, nil, nil, []string{"cron"}},
		"a store without ledger": {forgetful, c, nil, []string{"guard"}},
		"a bad option":           {g, c, []guardcron.Option{guardcron.WithHistory(0)}, []string{"WithHistory"}},
		"everything at once":     {nil, nil, []guardcron.Option{nil, guardcron.WithStartDeadline(0)}, []string{"guard", "cron", "Option", "WithStartDeadline"}},
	} {
		jobs, err := guardcron.New(test.guard, test.cron, test.opts...)
		require.Nil(t, jobs, title)
		require.ElementsMatch(t, test.named, settings(err), title)
	}
}

// noLedger is a store that keeps leases only.
type noLedger struct{ guard.Locker }

// Options of New are those of all jobs; a job's own go before them, and reach no other.
func TestOptions_ofAllJobsAndOfOne(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var all, one recorder
		p := s.process("a", setup{jobs: []guardcron.Option{guardcron.WithObserver(all.record), guardcron.WithOverlap(guardcron.Allow)}})
		p.add("one", "2/2 * * * *", none, guardcron.WithObserver(one.record), guardcron.WithOverlap(guardcron.Skip))
		p.add("other", "3/2 * * * *", lasting(3*time.Minute))
		p.cron.Start()
		s.until("2026-06-15T12:05:30Z")
		require.Equal(s.t, []string{"12:02:00 ran", "12:04:00 ran"}, one.outcomes())
		require.Equal(s.t, []string{"12:02:00 ran", "12:04:00 ran"}, all.outcomes())
		require.Equal(s.t, []string{"12:03:00 running", "12:05:00 running"}, p.outcomes("other"))
	})
}

func TestOptions_ofJobsAreApart(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		all, own := make([]recorder, 3), make([]recorder, 2)
		of := setup{}
		for i := range all {
			of.jobs = append(of.jobs, guardcron.WithObserver(all[i].record))
		}
		p := s.process("a", of)
		for i, name := range []string{"one", "other"} {
			p.add(name, "* * * * *", nil, guardcron.WithObserver(own[i].record))
		}
		require.NoError(s.t, p.RunNow(context.Background(), "one"))
		require.Len(s.t, own[0].outcomes(), 1)
		require.Empty(s.t, own[1].outcomes())
		for i := range all {
			require.Len(s.t, all[i].outcomes(), 1)
		}
	})
}

// A job can switch off what New has set.
func TestOptions_zeroIsOff(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	jobs, err := guardcron.New(g, cron.New(), guardcron.WithMaxHold(time.Minute))
	require.NoError(t, err)
	_, err = jobs.AddFunc("report", "@hourly", none, guardcron.WithMaxHold(0), guardcron.WithLease(guard.WithMinHold(2*time.Minute)))
	require.NoError(t, err)
}
