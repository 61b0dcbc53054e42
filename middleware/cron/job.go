package guardcron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// A job is one entry. To cron it is both the schedule, which knows the ticks, and the job, which
// does not receive them.
type job struct {
	settings

	jobs          *Jobs
	name          string
	kind          string // the name of the leases
	who           string // what others see of this process: its label
	spec          string // "" if it was given as a schedule
	schedule      cron.Schedule
	marks         ticks.Marks    // of the schedule
	location      *time.Location // the schedule's
	longestPeriod time.Duration  // between two ticks, at least half of it
	f             func(ctx context.Context) error
	ledger        driver.Ledger // its calls end within the TTL of the leases
	entry         cron.EntryID  // guarded by jobs.mu; 0 if it is not in the Cron yet

	leaving context.Context // ends when the job is removed or Jobs are closed; waits end then
	leave   context.CancelFunc

	mu        sync.Mutex // guards what follows
	born      time.Time  // when the Cron first asked for a tick
	seen      time.Time  // ticks up to here are pending, or have an outcome
	pending   map[int64]*pending
	more      ticks.Span    // ticks before those that are pending
	settled   time.Time     // the newest tick that has an outcome
	ended     []time.Time   // ticks that this process has ended, not written down yet (mark)
	newest    time.Time     // the newest of those that were
	marked    time.Time     // up to here the store knows that all ticks have an outcome
	checked   bool          // the store was asked for ticks that no process has handled
	first     bool          // no process had run the job when this one started
	looking   bool          // a goroutine looks at pending ticks that no other goroutine handles
	announced bool          // other programs know of the job; only lookOnce uses it
	begun     bool          // the store knows of the spec; only lookOnce uses it
	isNew     bool          // no process had the spec before; only lookOnce uses it
	look      chan struct{} // asks it to look again
	next      time.Time     // when the first tick after nextAfter starts
	nextAfter time.Time
	triggered bool          // while the Cron was stopped
	due       int           // ticks that are due now, and neither run to their end nor left out
	quiet     chan struct{} // closed when due is 0; nil if no goroutine waits for that
	unwritten []*entry      // records that the store has not taken yet

	announceAt time.Time // when to announce the job again; zero if it was not announced
}

func (j *Jobs) newJob(name, spec string, schedule cron.Schedule, f func(ctx context.Context) error, opts []Option) (*job, error) {
	b := &job{
		settings: j.set, jobs: j, name: name, spec: spec, schedule: schedule, f: f,
		pending: map[int64]*pending{}, look: make(chan struct{}, 1), first: true,
	}
	b.lease, b.observed = slices.Clip(b.lease), slices.Clip(b.observed)
	refused.Apply(&b.List, &b.settings, opts)
	if f == nil {
		b.Refuse("f", nil, "must not be nil")
	}
	switch {
	case name == "":
		b.Refuse("name", `""`, "must not be empty")
	case strings.Contains(name, "@"):
		b.Refuse("name", fmt.Sprintf("%q", name), "must not contain @, which separates a job from its tick")
	}
	if schedule == nil {
		b.Refuse("schedule", nil, "must not be nil")
	} else {
		b.schedule, b.location = ticks.Align(schedule), ticks.Location(schedule, j.cron.Location())
		b.checkSchedule(j.now().In(j.cron.Location()))
	}
	a := j.guard.Adapter()
	b.Err = errors.Join(b.Err, a.CheckOptions(unused, b.lease...), checkLabel(j.guard, b.lease))
	if b.Err != nil {
		return nil, b.Err
	}
	b.ledger, _ = a.Ledger(b.lease...)
	b.marks = ticks.Marks{Ledger: b.ledger, Name: ledgerName(name), Spec: ticks.SpecOf(spec, b.schedule, b.location)}
	b.kind, b.who = cmp.Or(a.Name(b.lease...), name), a.Label(b.lease...)
	// a key, too, is no longer than a name
	ofRun := append(b.runOptions(b.runKey()), guard.WithName(name))
	for _, opts := range [][]guard.Option{ofRun, append(ofRun, guard.WithOnce(b.memory), guard.WithLimit(0))} {
		if err := j.guard.Check(b.runKey(), b.leaseOptions(0, opts...)...); err != nil {
			return nil, err
		}
	}
	b.leaving, b.leave = context.WithCancel(j.open)
	return b, nil
}

// checkSchedule checks whether the options fit the schedule, and sets the tick memory.
func (b *job) checkSchedule(now time.Time) {
	at := b.schedule.Next(now)
	if at.IsZero() {
		b.Refuse("schedule", nil, "never fires in the next five years")
		return
	}
	least, longest := ticks.Periods(b.schedule, at)
	b.longestPeriod = longest
	if b.memory == 0 { // tests set it
		b.memory = max(tickMemory, 2*longest, 2*b.deadline, 2*b.longest)
		if b.local {
			b.memory = max(b.memory, localMemory)
		}
	}
	if b.jitter > 0 && b.jitter >= least {
		b.Refuse("WithJitter", b.jitter, fmt.Sprintf("must be shorter than the time between two ticks, %v", least))
	}
}

// runKey is the key that a run of the job holds, and tickKey that of a tick.
func (b *job) runKey() string { return "cron:" + b.name }

func (b *job) tickKey(tick time.Time) string {
	if b.local {
		name := tick.In(b.location).Format("2006-01-02T15:04:05.999999999")
		zone := url.QueryEscape(b.location.String()) // its name may be of any kind
		return b.runKey() + "@" + name + "@" + zone
	}
	return b.runKey() + "@" + tick.UTC().Format(time.RFC3339Nano)
}

// namesake returns the tick that was due before this one and has the same name, because the clock
// was set back in between (WithLocalTicks), or else the tick itself.
func (b *job) namesake(tick time.Time) time.Time {
	_, offset := tick.In(b.location).Zone()
	_, before := tick.Add(-maxSetBack).In(b.location).Zone()
	if first := tick.Add(time.Duration(offset-before) * time.Second); b.tickKey(first) == b.tickKey(tick) {
		return first
	}
	return tick
}

func (b *job) leaseOptions(wait time.Duration, more ...guard.Option) []guard.Option {
	return append(append(slices.Clip(b.lease), guard.WithName(b.kind), guard.WithWait(max(wait, 0))), more...)
}

// maxLabel is the longest label of a process, in bytes. The label of a lease also has the tick.
const maxLabel = 160

func checkLabel(g *guard.Guard, lease []guard.Option) error {
	if label := g.Adapter().Label(lease...); len(label) > maxLabel {
		return refused.Setting("WithLabel", fmt.Sprintf("%.32q…", label),
			fmt.Sprintf("must not be longer than %d bytes here: the label of a lease also has the tick", maxLabel))
	}
	return nil
}

// runOptions are the further options of the lease of the job. The longest run bounds that lease
// only: a process that loses the lease of a tick cannot end the tick, and others would run it
// again.
func (b *job) runOptions(label string) []guard.Option {
	opts := []guard.Option{guard.WithLabel(label)}
	if b.longest > 0 {
		opts = append(opts, guard.WithMaxHold(b.longest))
	}
	return opts
}

// now returns the time in the location of the Cron. It has no monotonic reading: ticks are
// instants of the wall clock.
func (b *job) now() time.Time { return b.jobs.now().Round(0).In(b.jobs.cron.Location()) }

// at returns when a tick starts: at the tick itself, or with WithJitter at an instant after it
// that is the same in all processes.
func (b *job) at(tick time.Time) time.Time {
	if b.jitter == 0 {
		return tick
	}
	sum := fnv.New64a()
	_, _ = fmt.Fprint(sum, b.name, tick.UnixNano())
	const scale = 1 << 20
	mixed := sum.Sum64() * 0x9E3779B97F4A7C15 >> 44 // FNV alone is even in its low bits only
	return tick.Add(time.Duration(float64(b.jitter) * float64(mixed) / scale))
}

// late returns by how much a tick has passed.
func (b *job) late(tick time.Time) time.Duration { return b.now().Sub(b.at(tick)) }

// Next implements cron.Schedule. cron asks when it starts, and after each firing.
func (b *job) Next(t time.Time) time.Time {
	b.begins()
	now := b.now()
	b.mu.Lock()
	begins := b.born.IsZero()
	if begins {
		b.born, b.seen = now, now
	}
	b.mu.Unlock()
	switch {
	case begins:
		b.lookAgain()
	case b.untilOverdue() <= 0: // the Cron was stopped, or the process was suspended
		b.jobs.inBackground(b.serveIfStarted)
	default:
		b.lookAtBacklog()
	}
	ahead := time.Duration(b.jobs.ahead.Load())
	if at := b.startAfter(b.schedule, t.Add(ahead)); !at.IsZero() {
		return at.Add(-ahead)
	}
	return time.Time{}
}

// begins is called when the Cron asks for a tick of the job: it is not stopped. What has waited for
// that is done now.
func (b *job) begins() {
	b.jobs.watch.Do(func() { go b.jobs.watchClock() })
	b.mu.Lock()
	triggered := b.triggered
	b.triggered = false
	announces := !b.announceAt.IsZero() && !b.now().Before(b.announceAt)
	if announces {
		b.announceAt = time.Time{}
	}
	b.mu.Unlock()
	if triggered {
		b.jobs.inBackground(b.runIfTriggered)
	}
	if announces {
		b.lookAgain()
	}
}

// Run implements cron.Job. A firing of the Cron only says that a tick may be due; use RunNow to run
// the job at once. The tick runs in this goroutine, unless it has to wait: cron.Stop waits for it.
func (b *job) Run() {
	here := &firing{run: make(chan func())}
	b.serve(here)
	for run := range here.run {
		run()
	}
}

// A firing is a call of Run, which runs a tick for the goroutine that handles it.
type firing struct {
	run  chan func() // closed when nothing will be run
	over bool        // only the goroutine uses it
}

// runs has the call run f, and returns when f has ended. It returns false if the call is over, and
// on nil.
func (f *firing) runs(run func()) bool {
	if f == nil || f.over {
		return false
	}
	ended := make(chan struct{})
	f.run <- func() {
		defer close(ended)
		run()
	}
	<-ended
	return true
}

// end lets the call return.
func (f *firing) end() {
	if f != nil && !f.over {
		f.over = true
		close(f.run)
	}
}

// come returns the ticks of a schedule, that of the job or less, that start after from, up to to.
func (b *job) come(schedule cron.Schedule, from, to time.Time) ticks.Span {
	loc := b.jobs.cron.Location()
	return ticks.Come(schedule, from.In(loc).Add(-b.jitter), to.In(loc), func(tick time.Time) bool {
		at := b.at(tick)
		return at.After(from) && !at.After(to)
	})
}
