package guardasynq

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-1795987d/onerun/guard"
)

// settle decides what happens to the task after a try that ended with err. It returns the error
// for asynq, and whether the task is settled: if it is not, there must be another try.
func (d *delivery) settle(err error) (tell error, settled bool) {
	switch {
	case d.asked != nil:
		d.end(ResultPostponed, nil)
		return d.postpone(d.err)
	case d.returned && d.err == nil:
		d.end(ResultRan, err)
		return nil, true
	case d.isCutOff(err):
		d.end(ResultUnavailable, err)
		return d.postpone(err)
	case d.started:
		d.end(ResultRan, err)
		return err, true
	case d.overtaken:
		d.end(ResultCoalesced, nil)
		d.handOff(d.ended)
		return nil, true
	case errors.Is(err, guard.ErrDone):
		return d.giveResult(err)
	case d.ctx.Err() != nil:
		d.end(ResultCanceled, err)
		return err, true
	case errors.Is(err, guard.ErrBusy):
		d.noteBusy(err)
		return d.busy(err)
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed), errors.Is(err, guard.ErrLost):
		// The lease of WithOnce can be lost while the task waits for its key.
		d.end(ResultUnavailable, err)
		return d.postpone(err)
	default:
		d.end(ResultRefused, err)
		return fmt.Errorf("guardasynq: lease of task %q: %w", d.task.Type(), err), true
	}
}

// isCutOff reports whether an outage of the store ended a run that had not failed: its lease
// expired because it could not be renewed, and the handler returned the error of its context. A
// lease that ends for another reason, such as WithMaxHold, would end the next run in the same way,
// so that run costs an attempt.
func (d *delivery) isCutOff(err error) bool {
	var lost *guard.LostError
	if !d.returned || d.ctx.Err() != nil || !errors.As(err, &lost) || lost.Reason != guard.LossExpired || lost.Renew == nil {
		return false
	}
	// errors.Is would also look into an errors.Join, which has an error of the handler's own
	for e := d.err; e != nil; e = errors.Unwrap(e) {
		_, isLost := e.(*guard.LostError)    //nolint:errorlint // see above
		if isLost || e == context.Canceled { //nolint:errorlint // see above
			return true
		}
	}
	return false
}

// busy decides what happens to a task whose key is busy.
func (d *delivery) busy(err error) (tell error, settled bool) {
	switch {
	case d.m.busy == Coalesce:
		return d.coalesce(err)
	case d.m.busy == Skip && !d.isUndecided():
		d.end(ResultSkipped, err)
		return nil, true
	case d.m.busy == Fail && !d.isUndecided():
		d.end(ResultBusy, err)
		return fmt.Errorf("guardasynq: task %q: %w", d.task.Type(), err), true
	default:
		d.end(ResultPostponed, err)
		return d.postpone(err)
	}
}

// endsTasks reports whether a task whose key is busy ends.
func (s *settings) endsTasks() bool { return s.busy == Skip || s.busy == Fail }

// noteBusy notes for the hooks that the key was busy, and the holder's label.
func (d *delivery) noteBusy(err error) {
	d.skip = "busy"
	var busy *guard.BusyError
	if errors.As(err, &busy) {
		d.holder = busy.Label
	}
}

// skipped returns the word for why the task was not run, or "" if it ran.
func (d *delivery) skipped() string {
	if d.started {
		return "" // in a later try
	}
	return d.skip
}
