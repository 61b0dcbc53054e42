package guardcron

import (
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// The defaults and bounds.
const (
	startDeadline = time.Minute
	keptRuns      = 100
	maxHistory    = 3000
	tickMemory    = time.Hour

	// maxSetBack is by how much a clock change sets clocks back at most, and localMemory the
	// shortest tick memory with WithLocalTicks.
	maxSetBack  = 2 * time.Hour
	localMemory = 3 * time.Hour
)

// Overlap is what happens to a tick that is due while the job still runs for an earlier one, in
// whatever process.
type Overlap int

const (
	// Skip leaves the tick out.
	Skip Overlap = iota
	// Wait waits for the earlier run, up to the start deadline. After that it leaves the tick out.
	Wait
	// Allow lets both run at the same time.
	Allow
)

// An Option is a setting of New, for all jobs, or of one job.
type Option func(*settings)

// unused are the options of the leases that a job cannot honor, and why.
var unused = map[string]string{
	"WithOnce":      "has no effect here: a tick is remembered for twice the time between two ticks, at least for an hour",
	"WithWait":      "has no effect here: WithOverlap and WithStartDeadline set how long a tick waits",
	"WithOwner":     "would let all processes run a tick at the same time",
	"WithOwnerFrom": "would let all processes run a tick at the same time",
}

// settings are what the options have set.
type settings struct {
	refused.List

	memory   time.Duration // how long the store remembers that a tick was run: the tick memory
	deadline time.Duration
	longest  time.Duration
	overlap  Overlap
	catchUp  int
	rerun    bool
	local    bool
	jitter   time.Duration
	history  int
	lease    []guard.Option
	observed []func(Record)
}

// WithOverlap sets what happens to a tick that is due while the job still runs for an earlier one.
// A tick that is due while an old one is caught up with waits for the end of that run whatever is
// set. It waits until the start deadline, or until the next tick if that is later. If it starts
// late for that reason, the next ones may start as late.
//
// It replaces cron.SkipIfStillRunning and cron.DelayIfStillRunning. In the chain of the Cron,
// these keep ticks from this package, so that they are run late, or Missed. Defaults to Skip.
func WithOverlap(o Overlap) Option {
	return func(s *settings) {
		if o < Skip || o > Allow {
			s.Refuse("WithOverlap", int(o), "is none of Skip, Wait and Allow")
		}
		s.overlap = o
	}
}

// WithCatchUp runs the newest n of the ticks that no process was up to run, or finished, within the
// start deadline. The others are reported as Missed. n is at most 1000. They run one at a time, the
// oldest first, while no current tick runs or waits. If current ticks leave no room for the length
// of the start deadline, old ones are Skipped. Defaults to 0.
func WithCatchUp(n int) Option {
	return func(s *settings) { s.Between(&s.catchUp, "WithCatchUp", n, 0, ticks.MaxCatchUp) }
}

// WithStartDeadline sets how late a tick may start. A process that was suspended, or could not ask
// the store, runs no tick that is older, unless WithCatchUp asks for it. A process that takes over
// from one that has died does so within this time. Defaults to one minute.
func WithStartDeadline(d time.Duration) Option {
	return func(s *settings) { s.Positive(&s.deadline, "WithStartDeadline", d) }
}

// WithMaxHold ends the context of a run after d, with guard.ErrLost as its cause. It is for a job
// that may hang. If the job does not return, the next tick can run one TTL of the lease later. The
// run is recorded as Lost.
//
// guard.WithMaxHold in WithLease is no replacement: it would also end the lease of the tick, and
// the tick would be run again. Defaults to 0, no limit.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.longest, "WithMaxHold", d) }
}

// WithObserver calls f with the outcome of each run in this process, and of each tick that this
// process has found skipped, missed or unavailable. It is not called for ticks that other
// processes run. Calls may come at the same time. A panic of f is ignored. Defaults to none.
func WithObserver(f func(Record)) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithObserver", nil, "must not be nil")
			return
		}
		s.observed = append(s.observed, f)
	}
}

// WithJitter starts each tick up to d later than the schedule says. The delay differs from tick to
// tick and from job to job, and is the same in all processes. So jobs with one spec do not all
// start at one instant. Tick returns the tick of the schedule. The start deadline counts from the
// delayed instant. It is shorter than the time between two ticks. Defaults to 0, no delay.
func WithJitter(d time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.jitter, "WithJitter", d) }
}

// WithRerun makes another process that waits for a tick run it again, within the start deadline,
// if its run has failed, or was cut short by Close. Defaults to off: a tick is run once, whether it
// fails or not.
func WithRerun() Option { return func(s *settings) { s.rerun = true } }

// WithLocalTicks names ticks by the local time in the schedule's location. A tick in an hour that
// a clock change repeats then runs once. A job that runs more often than once in an hour does not
// run in the second of the two hours.
//
// The name of a tick has the name of the location in it. A tick can run twice while processes with
// and without the option run at the same time. The same is true of locations with different names,
// such as "Local" and "Europe/Berlin". So stop all processes before such a change. Defaults to
// off: a tick in a repeated hour runs twice, as cron fires twice.
func WithLocalTicks() Option { return func(s *settings) { s.local = true } }

// WithHistory sets how many runs of a job are kept on record, from 1 to 3000, and as many runs by
// hand. Defaults to 100.
func WithHistory(runs int) Option {
	return func(s *settings) { s.Between(&s.history, "WithHistory", runs, 1, maxHistory) }
}

// WithLease sets options of the leases, such as guard.WithTTL and guard.WithHook. guard.WithFair
// orders runs that wait for others (Wait). guard.WithLimit(n) allows up to n runs of the job at a
// time; a tick is busy (WithOverlap) if there are n already. guard.WithLabel names the process, in
// records (Record.Who) and in the labels of leases, with at most 160 bytes. guard.WithName groups
// the job in hooks and metrics; without it, and if the Guard has no name, the name is that of the
// job.
//
// What cannot work is refused, here and in guard.New: guard.WithOnce, guard.WithWait (see
// WithOverlap), guard.WithOwner and guard.WithOwnerFrom. Defaults to the options of the Guard.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.lease = append(s.lease, opts...) }
}
