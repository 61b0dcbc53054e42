package guardasynq

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// defaultTTL should be over when asynq brings back the task of a worker that has died, which takes
// it a minute.
const defaultTTL = 15 * time.Second

// An Option is a setting of New. New refuses a setting that cannot work.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	claim.Settings

	key       KeyFunc
	client    *asynq.Client
	inspector *asynq.Inspector
	busy      BusyPolicy
	onceBy    KeyFunc
	perTask   func(context.Context, *asynq.Task) []guard.Option
}

// WithClient sets a client and an inspector of the Redis of the asynq server. The middleware needs
// them to enqueue a task again on its last attempt, and to bring back a waiting task when its key
// is free. It also finds the result that WithOnce keeps with them. Without them, asynq would
// archive a task whose last attempt finds the key busy or the store away. Close them after the
// server has shut down. Defaults to none: New returns a *guard.SettingError.
func WithClient(client *asynq.Client, inspector *asynq.Inspector) Option {
	return func(s *settings) {
		if client == nil || inspector == nil {
			s.Refuse("WithClient", nil, "must have a client and an inspector")
		}
		s.client, s.inspector = client, inspector
	}
}

// WithGroup makes tasks of several types share their keys, if their middlewares name the same
// group. Otherwise, each type has keys of its own. Defaults to "", no group.
func WithGroup(name string) Option {
	return func(s *settings) { s.WithGroup(name) }
}

// A BusyPolicy sets what happens to a task if another run holds its key.
type BusyPolicy int

const (
	// Requeue returns the task to the queue. The task comes back when a run of its key ends, in
	// any process. It comes back at the latest when the holder's lease would end, or after
	// WithDelay. That costs no attempt and is no failure. If the backend does not notify, such as
	// memory, only the end of a run in the same process brings it back early. On one that is no
	// driver.Inspector, the end of a run in the moment of the postponement does not.
	//
	// A task that comes back early goes behind the backlog, and asynq counts no pending time for
	// it: Inspector.RunTask is asynq's only call that makes a task pending, and does both. To
	// enqueue it anew would give it a pending time, but no better position, and another ID.
	//
	// On its last attempt, asynq would archive the task. So a copy is enqueued in its place, with
	// all that it carries but its lock of asynq.Unique. While the copy waits, asynq.TaskID does
	// not keep out another task with the original's ID. If that one has the same type and payload,
	// and still waits when the copy comes to a worker, it runs for both, and the copy ends
	// ("coalesced"). If it has run by then, or runs, the copy runs as well. WithOnce keeps such
	// repeats out, and so does a MaxRetry above 0: copies are made on the last attempt only.
	Requeue BusyPolicy = iota
	// Skip ends the task, as done: the run that holds the key does the work of both. A repeat
	// (WithOnce) of a task that has yet to get its key is postponed as with Requeue, and so it is
	// with Fail.
	Skip
	// Fail fails the task with the *guard.BusyError, which costs an attempt, and archives it on
	// its last one.
	Fail
	// Coalesce makes one more run of all tasks that come during a run, after it. The newest of
	// them runs, and the others end, as done. The newest is the one that came to its worker last,
	// by the clocks of the hosts. Tasks that were with workers at the same time have no order. The
	// tasks of a key must be in one queue. A task that fails is retried whatever has run since,
	// unless a newer one waits.
	Coalesce
)

// WithBusy sets what happens to a task whose key another run holds. Defaults to Requeue.
func WithBusy(b BusyPolicy) Option {
	return func(s *settings) {
		if b < Requeue || b > Coalesce {
			s.Refuse("WithBusy", int(b), "is none of Requeue, Skip, Fail and Coalesce")
		}
		s.busy = b
	}
}

// WithDelay postpones a task that did not run by d, and up to a quarter more, so that not all of
// them come back at once. asynq looks for such tasks once in its DelayedTaskCheckInterval. A task
// with an asynq.Deadline comes back earlier if it would miss that. Defaults to what is left of the
// lease of the run that holds the key, at most a minute, and to 5 s if the store is unavailable. At
// most ten years.
func WithDelay(d time.Duration) Option {
	return func(s *settings) { s.WithDelay(d, claim.LongestDelay) }
}

// WithWait lets a task wait for its key in its worker, for up to d and no longer than a second
// before its deadline, before WithBusy decides. The next task of the key then begins without a
// delay, but a worker that waits does nothing else: tasks of one key can occupy all workers. With
// WithOnce, d bounds the wait for both leases. Defaults to 0: tasks do not wait in workers.
func WithWait(d time.Duration) Option {
	return func(s *settings) { s.WithWait(d) }
}

// WithOnce keeps out repeats for the window after a run whose handler returned nil. The KeyFunc
// says what a repeat is: FromTaskID, FromPayload, or FromJSON("order") if tasks are run one at a
// time for each customer. A task that comes in the window ends at once, as done. It gets the
// result that the first one has written to its asynq.ResultWriter, if any. A task for which by
// returns ErrUnguarded is no repeat.
//
// With a key in New, a run has two leases, and guard.FromContext and guard.Fence return the one of
// that key. With none (nil) there is one lease, on the key of by. Its guard.Lease.SetRecord is
// another way to set the result. Defaults to no marker.
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
// orders tasks that wait in their workers, and guard.WithLimit(n) allows up to n tasks of a key at
// a time, unless New has no key. The TTL has nothing to do with how long tasks take. It should be
// well under the minute after which asynq brings back the task of a worker that has died.
//
// guard.WithMaxHold frees the key of a handler that hangs, and the attempt counts.
//
// What cannot work is refused, here and in guard.New: guard.WithWait and guard.WithOnce (use
// WithWait and WithOnce), guard.WithOwner and guard.WithOwnerFrom (use WithTaskLease). If the Guard
// has no name, the name is the type of the task. Defaults to the options of the Guard, with a TTL
// of 15 s if guard.New was given none.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.WithLease(opts) }
}

// WithTaskLease adds options for the lease of a single task, such as guard.WithOwnerFrom with its
// headers. An option that cannot work fails the task with a *guard.SettingError: guard.WithWait and
// guard.WithOnce always do. Defaults to none.
func WithTaskLease(f func(ctx context.Context, task *asynq.Task) []guard.Option) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithTaskLease", nil, "must not be nil")
		}
		s.perTask = f
	}
}
