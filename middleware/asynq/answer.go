package guardasynq

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// A result is the final result of a delivery, which hooks receive as guard.Outcome.Result. The
// results are few and fixed, so they can be a label of a metric. The package comment lists them.
type result string

const (
	resultRan         result = "ran"
	resultUnguarded   result = "unguarded"
	resultDone        result = "done"
	resultSkipped     result = "skipped"
	resultCoalesced   result = "coalesced"
	resultPostponed   result = "postponed"
	resultUnavailable result = "unavailable"
	resultBusy        result = "busy"
	resultRefused     result = "refused"
	resultCanceled    result = "canceled"
)

// answer decides what happens to the task after acquire returned err. It returns the error for
// asynq, and whether it is final. If it is not, the task stays with its worker, which tries again.
func (d *delivery) answer(err error) (answer error, final bool) {
	var snooze *PostponedError
	switch {
	case d.started && errors.As(d.err, &snooze) && snooze.snoozed && !snooze.final:
		return d.snooze(snooze)
	case d.started && d.err == nil:
		d.outcome.Err = err // that the lease was lost
		return nil, true
	case d.started && claim.IsCutOff(d.ctx, err, d.err):
		return d.postpone(resultUnavailable, err)
	case d.started:
		d.outcome.Err = err
		return err, true
	case err == nil: // the run of a newer task replaces this one
		d.end(resultCoalesced, nil)
		return nil, true
	case errors.Is(err, guard.ErrDone):
		return d.giveResult(err)
	case d.ctx.Err() != nil:
		d.end(resultCanceled, err)
		return err, true
	case errors.Is(err, guard.ErrBusy):
		return d.answerBusy(err)
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed), errors.Is(err, guard.ErrLost):
		// The lease of WithOnce can be lost while the task waits for its key.
		return d.postpone(resultUnavailable, err)
	default:
		d.end(resultRefused, err)
		return fmt.Errorf("guardasynq: lease of task %q: %w", d.task.Type(), err), true
	}
}

// answerBusy decides what happens to a task whose key is busy.
func (d *delivery) answerBusy(err error) (answer error, final bool) {
	var b *guard.BusyError
	d.outcome.Skipped = "busy"
	if errors.As(err, &b) {
		d.outcome.Label = b.Label
	}
	// Another task has the lease of WithOnce, and no run has the key. The other task may be about
	// to find the key busy. If it runs, it does so under another key.
	undecided := b != nil && d.onceKey != d.identity && b.Key == d.onceKey && !errors.Is(d.m.look(d.ctx, d.identity), guard.ErrBusy)
	switch {
	case d.m.busy == Coalesce:
		return d.coalesce(err)
	case d.m.busy == Skip && !undecided:
		d.end(resultSkipped, err)
		return nil, true
	case d.m.busy == Fail && !undecided:
		d.end(resultBusy, err)
		return fmt.Errorf("guardasynq: task %q: %w", d.task.Type(), err), true
	default:
		return d.postpone(resultPostponed, err)
	}
}

// keepResult makes what the handler has written to its ResultWriter the record of the done marker.
func (d *delivery) keepResult(marker *guard.Lease) {
	if !d.fromServer {
		return
	}
	info, err := d.m.inspector.GetTaskInfo(d.queue, d.id)
	if err == nil && len(info.Result) > 0 {
		err = marker.SetRecord(info.Result)
	}
	if err != nil {
		d.outcome.Refused = fmt.Errorf("guardasynq: task %q: the result cannot be kept for repeats: %w", d.id, err)
	}
}

// giveResult ends a task whose work is done, with the result of the run that has done it.
func (d *delivery) giveResult(err error) (answer error, final bool) {
	var already *guard.DoneError
	// the writer is nil if an outer handler has replaced the task
	if errors.As(err, &already) && len(already.Record) > 0 && d.fromServer && d.task.ResultWriter() != nil {
		if _, err := d.task.ResultWriter().Write(already.Record); err != nil {
			return d.postpone(resultUnavailable, fmt.Errorf("guardasynq: write the result of task %q, which was done before: %w", d.id, err))
		}
	}
	if d.onceKey != d.identity {
		d.outcome.Skipped = "done" // hooks do not learn it from an auxiliary lease
	}
	d.end(resultDone, nil)
	d.freed = time.Now()
	return nil, true
}
