package guardasynq

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// resultCoalesced is the result of a task that another run covers.
const resultCoalesced claim.Result = "coalesced"

// answer decides what happens to the task after acquire. It returns the error for asynq, and
// whether it is final. If it is not, the task stays with its worker, which tries again.
func (d *delivery) answer(v claim.Verdict) (answer error, final bool) {
	if d.Started {
		return d.answerRan(v.Err)
	}
	switch {
	case v.Result == claim.Ran && v.Err == nil: // the run of a newer task replaces this one
		d.End(resultCoalesced, nil)
		return nil, true
	case v.Result == claim.Done:
		return d.giveResult(v.Record)
	case d.ctx.Err() != nil:
		d.End(claim.Canceled, v.Err)
		return v.Err, true
	case v.Result == claim.Busy:
		return d.answerBusy(v)
	case v.Result == claim.Refused:
		return d.Refuse(fmt.Errorf("guardasynq: lease of %v: %w", d, v.Err)), true
	default:
		return d.postpone(claim.Unavailable, v.Err)
	}
}

// answerRan is answer for a task whose handler has run.
func (d *delivery) answerRan(err error) (answer error, final bool) {
	var snooze *PostponedError
	switch {
	case errors.As(d.Err, &snooze) && snooze.snoozed && !snooze.final:
		return d.snooze(snooze)
	case d.Err == nil: // the Outcome has that the lease was lost
		return nil, true
	case claim.IsCutOff(d.ctx, err, d.Err):
		return d.postpone(claim.Unavailable, err)
	default:
		return err, true
	}
}

// answerBusy decides what happens to a task whose key is busy.
func (d *delivery) answerBusy(v claim.Verdict) (answer error, final bool) {
	// If the repeat runs after all, it does so under another key.
	undecided := v.OfRepeat && !errors.Is(d.m.core.Look(d.ctx, d.Identity), guard.ErrBusy)
	switch {
	case d.m.busy == Coalesce:
		return d.coalesce(v.Err)
	case d.m.busy == Skip && !undecided:
		d.End(claim.Skipped, v.Err)
		return nil, true
	case d.m.busy == Fail && !undecided:
		return fmt.Errorf("guardasynq: %v: %w", d, v.Err), true
	default:
		return d.postpone(claim.Postponed, v.Err)
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
		d.Outcome.Refused = fmt.Errorf("guardasynq: task %q: the result cannot be kept for repeats: %w", d.id, err)
	}
}

// giveResult ends a task whose work is done, with the result of the run that has done it.
func (d *delivery) giveResult(result []byte) (answer error, final bool) {
	// the writer is nil if an outer handler has replaced the task
	if len(result) > 0 && d.fromServer && d.task.ResultWriter() != nil {
		if _, err := d.task.ResultWriter().Write(result); err != nil {
			d.Outcome.Skipped = ""
			return d.postpone(claim.Unavailable, fmt.Errorf("guardasynq: write the result of task %q, which was done before: %w", d.id, err))
		}
	}
	d.freed = time.Now()
	return nil, true
}
