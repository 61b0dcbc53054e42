package guardcron_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// noon is when a site begins by default: between ticks.
const noon = "2026-06-15T12:00:30Z"

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// A site is one store and the processes that share it, in virtual time, at a date of the test's
// choice.
type site struct {
	t     *testing.T
	store *memory.Locker
	base  time.Duration // between the bubble's clock and that of the site

	mu   sync.Mutex
	runs []run
}

// A run is a call of a job.
type run struct {
	who, tick string // the tick in UTC, or "" for none
	at        string // in UTC, by the site's clock
}

// onSite runs f in virtual time that begins at the instant.
func onSite(t *testing.T, begin string, f func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&site{t: t, store: memory.New(), base: time.Until(instant(t, begin))})
		synctest.Wait()
	})
}

func (s *site) now() time.Time { return time.Now().Add(s.base).UTC() }

// until sleeps until the instant, and until nothing is left to do in it.
func (s *site) until(text string) {
	s.t.Helper()
	at := instant(s.t, text)
	require.False(s.t, at.Before(s.now()), "%s has passed", text)
	time.Sleep(at.Sub(s.now())) // virtual time
	synctest.Wait()
}

func (s *site) sleep(d time.Duration) {
	time.Sleep(d) // virtual time
	synctest.Wait()
}

// ran notes a run.
func (s *site) ran(ctx context.Context, who string) {
	r := run{who: who, at: s.now().Format(time.RFC3339Nano)}
	if tick, ok := guardcron.Tick(ctx); ok {
		r.tick = tick.Format(time.RFC3339Nano)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, r)
}

// ticks returns the ticks that were run, in their order, each as often as it was run.
func (s *site) ticks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ticks := []string{}
	for _, r := range s.runs {
		ticks = append(ticks, r.tick)
	}
	slices.Sort(ticks)
	return ticks
}

// times returns when runs began, in their order.
func (s *site) times() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := []string{}
	for _, r := range s.runs {
		times = append(times, r.at)
	}
	return times
}

func (s *site) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = nil
}

// A process is one of the processes that share the store.
type process struct {
	*guardcron.Jobs
	site  *site
	who   string
	line  *line
	guard *guard.Guard
	cron  *cron.Cron
}

// A setup is what a process has that is not the default.
type setup struct {
	skew  time.Duration
	cron  []cron.Option
	guard []guard.Option
	jobs  []guardcron.Option
}

// process starts one whose clock is ahead of the site's. Its Cron has yet to be started.
func (s *site) process(who string, of setup) *process {
	s.t.Helper()
	p := &process{site: s, who: who, line: newLine(s.store)}
	var err error
	p.guard, err = guard.New(p.line, append([]guard.Option{guard.WithoutNamespace()}, of.guard...)...)
	require.NoError(s.t, err)
	p.cron = cron.New(append([]cron.Option{cron.WithLocation(time.UTC)}, of.cron...)...)
	p.Jobs, err = guardcron.New(p.guard, p.cron, of.jobs...)
	require.NoError(s.t, err)
	guardcron.SetClock(p.Jobs, s.base+of.skew)
	guardcron.SetProcess(p.Jobs, who)
	s.t.Cleanup(func() {
		p.end()
		_ = p.Close(context.Background()) // for runs that take no notice of their context
	})
	return p
}

// end ends the process as one should.
func (p *process) end() {
	stopped := p.cron.Stop()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Close(over)
	<-stopped.Done()
	_ = p.guard.Close(over)
}

// die cuts the process off from the store.
func (p *process) die() {
	p.line.cut.Store(true)
	p.cron.Stop()
}

// add adds a job that notes its runs, and then does f, if there is one.
func (p *process) add(name, spec string, f func(ctx context.Context) error, opts ...guardcron.Option) cron.EntryID {
	p.site.t.Helper()
	id, err := p.AddFunc(name, spec, p.noting(f), opts...)
	require.NoError(p.site.t, err)
	return id
}

func (p *process) noting(f func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		p.site.ran(ctx, p.who)
		if f == nil {
			return nil
		}
		return f(ctx)
	}
}

// text returns a record as "tick outcome", or "first-last outcome" if it is of several ticks, with
// their times of day.
func text(r guardcron.Record) string {
	switch {
	case r.Tick.IsZero():
		return "by hand " + string(r.Result)
	case r.Ticks > 0:
		return r.Tick.Format(time.TimeOnly) + "-" + r.Until.Format(time.TimeOnly) + " " + string(r.Result)
	}
	return r.Tick.Format(time.TimeOnly) + " " + string(r.Result)
}

// outcomes returns the records of a job, the oldest first, as text.
func (p *process) outcomes(name string) []string {
	p.site.t.Helper()
	texts := []string{}
	for _, r := range slices.Backward(p.records(name)) {
		texts = append(texts, text(r))
	}
	return texts
}

func (p *process) records(name string) []guardcron.Record {
	p.site.t.Helper()
	records, err := p.Records(context.Background(), name, 1000)
	require.NoError(p.site.t, err)
	return records
}

// three starts three processes whose clocks differ, each with the same job.
func (s *site) three(of setup, spec string, f func(ctx context.Context) error, opts ...guardcron.Option) []*process {
	s.t.Helper()
	var all []*process
	for i, who := range []string{"a", "b", "c"} {
		of.skew = []time.Duration{-900 * time.Millisecond, 0, 900 * time.Millisecond}[i]
		p := s.process(who, of)
		p.add("job", spec, f, opts...)
		p.cron.Start()
		all = append(all, p)
	}
	return all
}

// lasting is a job that takes so long, or until its context ends.
func lasting(d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hanging is a job that takes no notice of its context.
func hanging(d time.Duration) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d) // virtual time
		return nil
	}
}

// alice is an operator.
var alice = inspect.By{Actor: "alice", Reason: "it hangs"}

func none(context.Context) error { return nil }

// onMissed calls f for the ticks that no process ran.
func onMissed(f func(guardcron.Record)) guardcron.Option {
	return guardcron.WithObserver(func(r guardcron.Record) {
		if r.Result == guardcron.Missed {
			f(r)
		}
	})
}

// A recorder collects records, for WithObserver.
type recorder struct {
	mu      sync.Mutex
	records []guardcron.Record
}

func (o *recorder) record(r guardcron.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records = append(o.records, r)
}

// outcomes is as that of a process.
func (o *recorder) outcomes() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	texts := []string{}
	for _, r := range o.records {
		texts = append(texts, text(r))
	}
	return texts
}

// A line is a process's connection to the store.
type line struct {
	linetest.Line
	cut     atomic.Bool
	delay   atomic.Int64 // how long it takes to add to a log, as a time.Duration
	deaf    atomic.Bool  // it adds nothing to logs
	left    atomic.Int64 // it is cut when so many more calls have begun, if that is not 0
	forgets atomic.Bool  // the store loses its ledger when a process has begun to catch up
	forgot  atomic.Bool

	// the calls that the store refuses
	spoilt atomic.Pointer[func(linetest.Call) bool]

	mu    sync.Mutex
	calls []string
}

func newLine(store *memory.Locker) *line {
	l := &line{}
	l.Line = linetest.Line{Locker: store, Ask: l.ask}
	return l
}

var errCut = errors.New("the line is cut")

func (l *line) ask(_ context.Context, c linetest.Call) error {
	if c.Op != driver.OpRenew {
		l.note(c.Name, c.Key)
	}
	if l.left.Load() > 0 && l.left.Add(-1) == 0 {
		l.cut.Store(true)
	}
	if c.Name == "append" {
		time.Sleep(time.Duration(l.delay.Load())) // virtual time
	}
	if l.cut.Load() || l.deaf.Load() && c.Name == "append" || l.refuses(c) {
		return driver.NewStoreError("memory", c.Op, c.Key, errCut)
	}
	if c.Op == driver.OpAcquire && l.forgets.Load() && strings.HasSuffix(c.Key, "@catch-up") {
		l.forgot.Store(true)
	}
	return nil
}

func (l *line) refuses(c linetest.Call) bool {
	spoilt := l.spoilt.Load()
	return spoilt != nil && (*spoilt)(c)
}

func (l *line) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	all, err := l.Line.EntriesOf(ctx, names, n)
	if l.forgot.Load() {
		return make([][]driver.Entry, len(names)), err
	}
	return all, err
}

func (l *line) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	all, err := l.Line.CountersOf(ctx, names, counters)
	if l.forgot.Load() {
		return make([]int64, len(names)), err
	}
	return all, err
}

func (l *line) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	if l.forgot.Load() {
		return 0, l.ask(ctx, linetest.Call{Name: "raise", Op: driver.OpLedger, Key: name})
	}
	return l.Line.Raise(ctx, name, counter, to)
}
