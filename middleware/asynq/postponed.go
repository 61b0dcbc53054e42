package guardasynq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/middleware/internal/claim"
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

// snooze postpones a task whose handler returned Snooze.
func (d *delivery) snooze(asked *PostponedError) (answer error, final bool) {
	p := &PostponedError{snoozed: true}
	if d.Err != error(asked) { //nolint:errorlint // one that is wrapped says more
		p.Err = d.Err
	}
	p.After, _ = d.beforeDeadline(asked.After)
	return d.comeBack(claim.Postponed, p, false)
}

// postpone makes a task come back later that did not run, or that an outage cut off.
func (d *delivery) postpone(r claim.Result, err error) (answer error, final bool) {
	p := &PostponedError{Err: err, cutOff: d.Started}
	after, shortened := d.delay(err)
	p.After = after
	answer, final = d.comeBack(r, p, r == claim.Postponed && d.m.requeues())
	if final && shortened && r == claim.Postponed && d.m.requeues() {
		// Nothing notifies of a lease that ends because its holder has died, and asynq's intervals
		// are too long for the Deadline.
		d.m.backlog.lookAfter(d.Identity, claim.Left(err))
	}
	return answer, final
}

// comeBack makes the task come back later: itself, or a copy. It is not final if the task needed a
// copy that could not be enqueued. A copy that waits for its key is added to the backlog.
func (d *delivery) comeBack(r claim.Result, p *PostponedError, waits bool) (answer error, final bool) {
	p.final, p.unconfigured = true, d.fromServer && d.intervals == 0
	d.End(r, p)
	if p.unconfigured {
		d.Outcome.Refused = errNotConfigured
	}
	if !d.needsCopy() {
		return p, true
	}
	id, err := d.enqueueCopy(p.After)
	if errors.Is(err, errGivenUp) {
		d.End(claim.Canceled, errors.Join(p.Err, err))
		return p, true
	}
	if err != nil {
		d.Outcome.Err = errors.Join(p, err)
		return d.Outcome.Err, false
	}
	p.Copy = id
	if waits {
		d.enqueue(id)
		d.wakeIfFree(id)
	}
	return p, true
}

// needsCopy reports whether a copy has to take the task's place if it does not run now. asynq
// archives what fails on the last attempt before it asks IsFailure, and takes no task back under
// its own ID. Without Configure it would count a failure.
func (d *delivery) needsCopy() bool {
	return d.fromServer && (d.attempts == 0 || d.intervals == 0)
}

// returnSlack is for all that has to happen between the return of a task and its deadline, beside
// asynq's intervals.
const returnSlack = time.Second

// delay returns for how long to postpone a task that did not run because of err, and whether its
// Deadline has shortened that.
func (d *delivery) delay(err error) (after time.Duration, shortened bool) {
	return d.beforeDeadline(d.m.core.Postpone(claim.Until(err)))
}

// beforeDeadline returns the delay, or a shorter one after which asynq still gives the task to a
// worker in time: it counts a failure, or archives the task, at its Deadline. It returns 0 if there
// is no such delay.
func (d *delivery) beforeDeadline(after time.Duration) (_ time.Duration, shortened bool) {
	ends, ok := d.ctx.Deadline() // of this delivery: not after the task's own Deadline
	spare := returnSlack + d.intervals
	if d.intervals == 0 {
		spare += asynqIntervals
	}
	if !ok || !d.fromServer || time.Until(ends)-spare >= after {
		return after, false
	}
	if info, err := d.m.inspector.GetTaskInfo(d.queue, d.id); err == nil {
		if ends = info.Deadline; ends.IsZero() {
			return after, false // a Timeout counts anew for each delivery
		}
	}
	latest := max(0, time.Until(ends)-spare)
	return min(after, latest), latest < after
}
