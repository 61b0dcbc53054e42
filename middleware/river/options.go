package guardriver

import (
	"context"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// defaultTTL is how long the key of a process that has died stays busy.
const defaultTTL = 15 * time.Second

// A BusyPolicy is what happens to a job whose key another run holds.
type BusyPolicy int

const (
	// Requeue snoozes the job, which costs no attempt. It comes back later, see WithDelay.
	Requeue BusyPolicy = iota
	// Skip completes the job without running it: the run under way does the work of both. A job
	// that has failed before, or that River has rescued, is snoozed instead: the run under way may
	// be its own, whose result River no longer takes.
	Skip
	// Fail fails the attempt with a *guard.BusyError. River retries the job by its policy.
	Fail
)

// An Option is a setting of New. New refuses a setting that cannot work.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	claim.Settings

	key    KeyFunc
	busy   BusyPolicy
	onceBy KeyFunc
	perJob func(context.Context, *rivertype.JobRow) []guard.Option
}

// WithGroup makes jobs of several kinds share their keys, if their middlewares name the same group.
// Otherwise, each kind has keys of its own. Defaults to "", no group.
func WithGroup(name string) Option {
	return func(s *settings) { s.WithGroup(name) }
}

// WithBusy sets what happens to a job whose key another run holds. Defaults to Requeue.
func WithBusy(b BusyPolicy) Option {
	return func(s *settings) {
		if b < Requeue || b > Fail {
			s.Refuse("WithBusy", int(b), "is none of Requeue, Skip and Fail")
		}
		s.busy = b
	}
}

// WithDelay snoozes a job that did not run for d, and up to a quarter more, so that not all of them
// come back at once. Each time costs the database a fetch and an update. Defaults to 1 s, which
// doubles up to 16 s each time that the job is snoozed, and to 5 s if the store is unavailable. At
// most ten years.
func WithDelay(d time.Duration) Option {
	return func(s *settings) { s.WithDelay(d, claim.LongestDelay) }
}

// WithWait lets a job wait for its key in its worker, for up to d, before WithBusy decides. The
// wait ends with the job's context, when River stops the client or cancels the job. The job's
// timeout counts from the end of the wait, but River's RescueStuckJobsAfter counts from its
// beginning. The next job of the key then begins without a delay, but a worker that waits does
// nothing else: jobs of one key can occupy all workers. With WithOnce, d bounds the wait for both
// leases. Defaults to 0: jobs do not wait in workers.
func WithWait(d time.Duration) Option {
	return func(s *settings) { s.WithWait(d) }
}

// WithOnce keeps out repeats for the window after a run whose worker returned nil. The KeyFunc says
// what a repeat is: FromJobID, FromArgs, or FromJSON("order") if jobs are run one at a time for
// each customer. A job that comes in the window is completed at once. A job for which by returns
// ErrUnguarded is no repeat.
//
// With a key in New, a run has two leases, and guard.FromContext and guard.Fence return the one of
// that key. With none (nil) there is one lease, on the key of by. Defaults to no marker.
func WithOnce(window time.Duration, by KeyFunc) Option {
	return func(s *settings) {
		s.WithOnce(window)
		if by == nil {
			s.Refuse("WithOnce", nil, "must have a function that says what a repeat is")
		}
		s.onceBy = by
	}
}

// WithLease sets options of the leases, such as guard.WithTTL and guard.WithHook. guard.WithFair
// orders jobs that wait in their workers, and guard.WithLimit(n) allows up to n jobs of a key at a
// time, unless New has no key. The TTL has nothing to do with how long jobs take: it is how long
// the key of a process that has died stays busy.
//
// guard.WithMaxHold frees the key of a worker that hangs, and the attempt counts.
//
// What cannot work is refused, here and in guard.New: guard.WithWait and guard.WithOnce (use
// WithWait and WithOnce), guard.WithOwner and guard.WithOwnerFrom (use WithJobLease). If the Guard
// has no name, the name is the kind of the job. Defaults to the options of the Guard, with a TTL of
// 15 s if guard.New was given none.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.WithLease(opts) }
}

// WithJobLease adds options for the lease of a single job, such as guard.WithLimit with a number
// from its args. An option that cannot work fails the attempt with a *guard.SettingError:
// guard.WithWait and guard.WithOnce always do. Defaults to none.
func WithJobLease(f func(ctx context.Context, job *rivertype.JobRow) []guard.Option) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithJobLease", nil, "must not be nil")
		}
		s.perJob = f
	}
}
