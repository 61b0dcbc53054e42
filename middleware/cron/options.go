package guardcron

import (
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// The defaults.
const (
	DefaultStartDeadline = time.Minute
	DefaultHistory       = 100
	// MinTickMemory is the shortest time for which it is remembered that a tick was run, where
	// WithTickMemory does not say a longer one.
	MinTickMemory = time.Hour

	// mostRepeated is by how much clocks are set back at most, and localWindow the shortest window
	// with WithLocalTicks.
	mostRepeated = 2 * time.Hour
	localWindow  = 3 * time.Hour
)

// Overlap says what becomes of a tick that is due while the job still runs for an earlier one, in
// whatever process.
type Busy int

const (
	// Skip leaves the tick out.
	Skip Busy = iota
	// Wait waits for the earlier run, up to the start deadline, and leaves the tick out after
	// that.
	Wait
	// Allow lets both run at a time.
	Allow
)

// CatchUp says what becomes of ticks that nobody was up to run, once somebody is.
type CatchUp int

// NoCatchUp reports them as missed. Newest runs the newest of them.
const (
	NoCatchUp CatchUp = 0
	Newest    CatchUp = 1
)

// UpTo runs the newest n of them, the oldest first.
func UpTo(n int) CatchUp { return CatchUp(n) }

// An Option is a setting of New, for all jobs, or of one job.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	refused.List

	window   time.Duration
	deadline time.Duration
	longest  time.Duration
	overlap  Busy
	catchUp  CatchUp
	rerun    bool
	local    bool
	jitter   time.Duration
	keep     int
	lease    []guard.Option
	missed   []func(Record)
	observed []func(Record)
}

// WithTickMemory says for how long it is remembered that a tick was run. It must not be shorter
// than the time between two ticks, and be longer than clocks differ. Default: twice the time
// between two ticks, an hour at least. With WithLocalTicks it is three hours at least.
func WithTickMemory(d time.Duration) Option {
	return func(s *settings) { s.Positive(&s.window, "WithTickMemory", d) }
}

// WithStartDeadline says how late a tick may start: a process that was paused or asleep runs none
// that is older, unless WithCatchUp asks for it, and one that waits for a tick which another one
// runs goes on in its place, if that one dies, no later than this. It is shorter than the window.
// Default: DefaultDeadline, one minute.
func WithStartDeadline(d time.Duration) Option {
	return func(s *settings) { s.Positive(&s.deadline, "WithStartDeadline", d) }
}

// WithMaxHold ends the context of a run after d, with guard.ErrLost as its cause, and lets the
// next tick in a TTL of the lease later, if the job has not returned by then: for a job that may
// hang. It is recorded as Lost. It is shorter than the window. Default: no bound.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.longest, "WithMaxHold", d) }
}

// WithBusy says what becomes of a tick that is due while the job still runs for an earlier one.
// Default: Skip.
func WithBusy(o Busy) Option {
	return func(s *settings) {
		if o < Skip || o > Allow {
			s.Refuse("WithBusy", int(o), "is none of Skip, Wait and Allow")
		}
		s.overlap = o
	}
}

// WithCatchUp says what becomes of ticks that nobody was up to run, or to finish, before the
// deadline (WithStartDeadline). They are those after the newest one that the store knows of.
// Default: NoCatchUp.
func WithCatchUp(c CatchUp) Option {
	return func(s *settings) {
		if c < 0 || c > mostCatchUp {
			s.Refuse("WithCatchUp", int(c), fmt.Sprintf("must be from 0 to %d", mostCatchUp))
		}
		s.catchUp = c
	}
}

const mostCatchUp = 1000

// WithRerun has a tick whose run has failed, panicked, or was cut short by Close, run again by
// another process that waits for it, within the deadline. Default: a tick is run once, whatever
// comes of it.
func WithRerun() Option { return func(s *settings) { s.rerun = true } }

// WithLocalTicks names ticks by what the clock on the wall shows in the schedule's location, so
// that a tick in an hour which a clock change repeats runs once. For jobs that run more often than
// once in an hour that leaves out what is due in the second of them. Default: it runs twice, as
// cron fires twice.
func WithLocalTicks() Option { return func(s *settings) { s.local = true } }

// WithJitter starts each tick up to d later than the schedule says, by a time that differs from
// tick to tick and from job to job, and is the same in all processes. Jobs with one spec do not all
// start in one instant then. Tick returns the tick of the schedule, and the start deadline counts
// from the later instant. It is shorter than the time between two ticks. Default: none.
func WithJitter(d time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.jitter, "WithJitter", d) }
}

// WithHistory says how many runs of a job are kept on record, from 1 to 3000. Default:
// DefaultHistory.
func WithHistory(runs int) Option {
	return func(s *settings) {
		if runs < 1 || runs > 3000 {
			s.Refuse("WithHistory", runs, "must be from 1 to 3000")
		}
		s.keep = runs
	}
}

// WithLease sets options of the leases, such as guard.WithTTL, guard.WithHook, and guard.WithFair
// for runs that wait for others (Wait). guard.WithName, guard.WithOnce, guard.WithWait and
// guard.WithLabel have no effect, and guard.WithMaxHold is better set by WithMaxHold.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.lease = append(s.lease, opts...) }
}

// WithMissed has f called, in one process, for each tick that was run by nobody. Its Reason says
// why. A process that dies, or loses its lease, while it is about to leave the tick done may have
// called f already when another one does. Calls may come at the same time.
func WithMissed(f func(Record)) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithMissed", nil, "must not be nil")
			return
		}
		s.missed = append(s.missed, f)
	}
}

// WithObserver has f called for each record that this process makes: runs, and ticks that were
// left out or missed. Calls may come at the same time.
func WithObserver(f func(Record)) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithObserver", nil, "must not be nil")
			return
		}
		s.observed = append(s.observed, f)
	}
}
