package guardasynq

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// Busy says what becomes of a task whose key another run holds.
type Busy int

const (
	// RetryLater gives the task back to the queue. It comes back after the time that is left of
	// the holder's lease, or that of WithDelay, and earlier if a run of its key ends in the
	// process that has sent it back. That costs no attempt and is no failure. On its last attempt,
	// where asynq would archive it, a copy is enqueued in its place, with all that it carries but
	// its lock of asynq.Unique.
	RetryLater Busy = iota
	// Skip ends the task, as done: the run that is under way does for both.
	Skip
	// Fail fails the task with the *guard.BusyError, which costs an attempt, and archives it on
	// its last one.
	Fail
	// Coalesce has all tasks that come while a run is under way lead to one more run after it, of
	// the newest of them. The others end, as done. Which one is the newest goes by when they came
	// to their workers: there is no order between those that were with workers at the same time,
	// and the clocks of the hosts count. The tasks of a key have to be in one queue. A task that
	// fails is retried whatever has run since, unless a newer one waits.
	Coalesce
)

// ErrNotConfigured says that the server's asynq.Config was not given to Configure.
var ErrNotConfigured = errors.New("guardasynq.Configure was not called on the server's asynq.Config")

// A PostponedError is a task that did not run and comes back later, because its key was busy
// (guard.ErrBusy) or the guard's store could not be asked (guard.ErrStore). With Configure, it
// costs no attempt.
type PostponedError struct {
	// After is how long it takes at most, give or take asynq's own intervals.
	After time.Duration
	// Copy is the ID of the task that has been enqueued in the place of this one, if asynq would
	// have archived it or counted a failure. The error is asynq.RevokeTask to errors.Is then:
	// asynq removes this one.
	Copy string
	// Err is why: a *guard.BusyError, *guard.StoreError, *guard.ClosedError.
	Err error

	unconfigured bool
}

// postponed is how the text of a PostponedError begins, which asynq keeps with the task.
const postponed = "guardasynq: postponed"

func (e *PostponedError) Error() string {
	s := fmt.Sprintf("%s by %v", postponed, e.After.Round(time.Millisecond))
	if e.Copy != "" {
		s += fmt.Sprintf(", as task %q", e.Copy)
	}
	if e.unconfigured {
		s += fmt.Sprintf(" (%v)", ErrNotConfigured)
	}
	return fmt.Sprintf("%s: %v", s, e.Err)
}

// Is reports whether target is what the task's end depends on: asynq.RevokeTask if a copy is in
// its place.
func (e *PostponedError) Is(target error) bool {
	return target == asynq.RevokeTask && e.Copy != "" || target == ErrNotConfigured && e.unconfigured
}

// Unwrap returns why the task did not run.
func (e *PostponedError) Unwrap() error { return e.Err }

// The delay of a task that did not run, where nothing says how long.
const (
	defaultDelay = 5 * time.Second
	longestDelay = time.Minute
)

// delay returns for how long to postpone a task that did not run because of err.
func (m *middleware) delay(err error) time.Duration {
	d := m.every
	if d == 0 {
		d = defaultDelay
		var busy *guard.BusyError
		if errors.As(err, &busy) && busy.Left > 0 {
			d = min(busy.Left, longestDelay)
		}
	}
	return d + rand.N(d/4+time.Millisecond) //nolint:gosec // jitter
}
