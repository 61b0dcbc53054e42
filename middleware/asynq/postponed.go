package guardasynq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

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

// A PostponedError is a task that comes back later. It did not run, because its key was busy
// (guard.ErrBusy) or the guard's store was unavailable (guard.ErrStore), or an outage of the store
// ended its run (guard.ErrLost). With Configure, it costs no attempt.
type PostponedError struct {
	// After is the delay until the task comes back. asynq adds up to its polling intervals.
	After time.Duration
	// Copy is the ID of the task that was enqueued in the place of this one, if asynq would have
	// archived it or counted a failure. The error is asynq.RevokeTask to errors.Is then, so asynq
	// removes this one.
	Copy string
	// Err is the reason: a *guard.BusyError, *guard.StoreError, *guard.ClosedError or
	// *guard.LostError. It is nil if the handler returned Snooze.
	Err error

	snoozed      bool // the handler returned Snooze
	final        bool // the middleware has handled it
	cutOff       bool // an outage ended its run
	unconfigured bool // the server's Config did not go through Configure
}

// Snooze returns an error by which a handler makes its task come back later, for example when a
// service that it needs is busy. That costs no attempt, counts as no failure, and never archives
// the task. On the last attempt, a copy takes its place, as with Requeue. The lease is released
// meanwhile. The error can be wrapped. asynq looks for such tasks once in its
// DelayedTaskCheckInterval. A handler that is not behind the middleware can use it on a server
// that went through Configure, but not on the last attempt. Behind the middleware, a task with an
// asynq.Deadline comes back earlier if it would miss that.
func Snooze(after time.Duration) error { return &PostponedError{After: max(0, after), snoozed: true} }

// IsPostponed reports whether a task in asynq's retry set has not failed, but waits there because
// it was postponed: asynq has no other place for such a task. Its LastErr says why, its
// LastFailedAt when, and its Retried does not count it. Alarms on retries, and dashboards, should
// leave these out. The copies of tasks on their last attempts are in the scheduled set, and have
// no error.
func IsPostponed(info *asynq.TaskInfo) bool {
	return info != nil && info.State == asynq.TaskStateRetry &&
		(waitsForKey(info) || strings.HasPrefix(info.LastErr, textSnoozed) || strings.HasPrefix(info.LastErr, textCutOff))
}

// waitsForKey reports whether a task in the retry set waits there for its key, or for the store.
func waitsForKey(info *asynq.TaskInfo) bool { return strings.Contains(info.LastErr, textPostponed) }

// How the text of a PostponedError begins. asynq keeps it with the task, and nothing else tells a
// postponed task from a failed one.
const (
	textPostponed = "guardasynq: postponed"
	textSnoozed   = "guardasynq: the handler postponed it"
	textCutOff    = "guardasynq: an outage ended its run, postponed"
)

var errNotConfigured = errors.New("the server's asynq.Config did not go through guardasynq.Configure")

func (e *PostponedError) Error() string {
	begin := textPostponed
	switch {
	case e.snoozed:
		begin = textSnoozed
	case e.cutOff:
		begin = textCutOff
	}
	s := fmt.Sprintf("%s by %v", begin, e.After.Round(time.Millisecond))
	if e.Copy != "" {
		s += fmt.Sprintf(", as task %q", e.Copy)
	}
	if e.unconfigured {
		s += fmt.Sprintf(" (%v)", errNotConfigured)
	}
	if e.Err == nil {
		return s
	}
	return fmt.Sprintf("%s: %v", s, e.Err)
}

// Is reports whether target is asynq.RevokeTask and a copy is in the task's place.
func (e *PostponedError) Is(target error) bool { return target == asynq.RevokeTask && e.Copy != "" }

// Unwrap returns why the task did not run.
func (e *PostponedError) Unwrap() error { return e.Err }
