package guardriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// A PostponedError is the error of an attempt that did not run, or was cut off by an outage: River
// snoozes its job, which costs no attempt. errors.As finds a *river.JobSnoozeError in it, and the
// reason.
type PostponedError struct {
	After  time.Duration // how long the job is snoozed
	Reason error         // a *guard.BusyError or *guard.StoreError, for example
}

func (e *PostponedError) Error() string {
	return fmt.Sprintf("guardriver: postponed for %v: %v", e.After.Round(time.Millisecond), e.Reason)
}

// Unwrap returns the error that makes River snooze the job, and the reason.
func (e *PostponedError) Unwrap() []error {
	return []error{&rivertype.JobSnoozeError{Duration: e.After}, e.Reason}
}

// answer returns the error for River after a claim.
func (a *attempt) answer(v claim.Verdict) error {
	// The deadline of an outer middleware ends a wait, but not the job.
	timedOut := v.Result == claim.Canceled && errors.Is(a.ctx.Err(), context.DeadlineExceeded)
	switch {
	case a.Started:
		return a.answerRan(v.Err)
	case v.Result == claim.Done:
		return nil
	case v.Result == claim.Busy, timedOut && errors.Is(v.Err, guard.ErrBusy):
		return a.answerBusy(v)
	case timedOut:
		return a.postpone(claim.Postponed, v.Err, a.busyDelay())
	case v.Result == claim.Canceled: // River stops, or has canceled the job
		return v.Err
	case v.Result == claim.Unavailable:
		return a.postpone(claim.Unavailable, v.Err, claim.UnavailableDelay)
	default:
		return a.Refuse(a.named(v.Err))
	}
}

// named says of what job an error of its lease is.
func (a *attempt) named(err error) error {
	return fmt.Errorf("guardriver: lease of %v: %w", a, err)
}

// answerRan is answer for a worker that has run.
func (a *attempt) answerRan(err error) error {
	var snooze *rivertype.JobSnoozeError
	var cancel *rivertype.JobCancelError
	switch {
	case errors.As(a.Err, &cancel): // River never runs the job again
	case errors.As(err, &snooze):
		a.End(claim.Postponed, err)
	case a.Err == nil && errors.Is(err, guard.ErrMarker): // the job is done
		return nil
	case claim.IsCutOff(a.ctx, err, a.Err):
		return a.postpone(claim.Unavailable, err, claim.UnavailableDelay)
	}
	return err
}

// answerBusy decides what happens to a job whose key is busy.
func (a *attempt) answerBusy(v claim.Verdict) error {
	policy := a.m.busy
	// What became of a repeat is known later. So it is of the run that holds the key if that may be
	// an earlier attempt of this job, which River has rescued: its result no longer counts, so the
	// job must not be completed here.
	if v.OfRepeat || policy == Skip && len(a.job.Errors) > 0 {
		policy = Requeue
	}
	switch policy {
	case Skip:
		a.End(claim.Skipped, v.Err)
		return nil
	case Fail:
		a.End(claim.Busy, v.Err)
		return a.named(v.Err)
	default:
		return a.postpone(claim.Postponed, v.Err, a.busyDelay())
	}
}

// The first delay of a job whose key is busy is doubled each time, so that jobs that wait for long
// ask seldom.
const (
	firstDelay   = time.Second
	maxDoublings = 4
)

// busyDelay returns for how long to postpone a job whose key is busy.
func (a *attempt) busyDelay() time.Duration {
	var metadata struct {
		Snoozes int `json:"snoozes"` // River counts them
	}
	if json.Unmarshal(a.job.Metadata, &metadata) != nil {
		return firstDelay
	}
	return firstDelay << min(max(metadata.Snoozes, 0), maxDoublings)
}

// postpone has River snooze the job for WithDelay, or else for the delay.
func (a *attempt) postpone(r claim.Result, reason error, delay time.Duration) error {
	err := &PostponedError{After: a.m.core.Postpone(delay), Reason: reason}
	a.End(r, err)
	return err
}
