package guardriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// A result is the final result of an attempt, which hooks receive as guard.Outcome.Result. The
// results are few and fixed, so they can be a label of a metric. The package comment lists them.
type result string

const (
	resultRan         result = "ran"
	resultUnguarded   result = "unguarded"
	resultDone        result = "done"
	resultSkipped     result = "skipped"
	resultPostponed   result = "postponed"
	resultUnavailable result = "unavailable"
	resultBusy        result = "busy"
	resultRefused     result = "refused"
	resultCanceled    result = "canceled"
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

// answer returns the error for River after acquire returned err.
func (a *attempt) answer(err error) error {
	if a.started {
		return a.answerRan(err)
	}
	switch {
	case errors.Is(err, guard.ErrDone):
		if a.onceKey != a.identity {
			a.outcome.Skipped = "done" // hooks do not learn it from an auxiliary lease
		}
		a.end(resultDone, nil)
		return nil
	case errors.Is(a.ctx.Err(), context.Canceled): // River stops, or has canceled the job
		a.end(resultCanceled, err)
		return err
	case errors.Is(err, guard.ErrBusy):
		return a.answerBusy(err)
	case a.ctx.Err() != nil: // the deadline of an outer middleware
		return a.postpone(resultPostponed, err, a.busyDelay())
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed), errors.Is(err, guard.ErrLost):
		// The lease of WithOnce can be lost while the job waits for its key.
		return a.postpone(resultUnavailable, err, defaultDelay)
	default:
		a.end(resultRefused, err)
		a.outcome.Refused = a.named("lease", err)
		return a.outcome.Refused
	}
}

// answerRan is answer for a worker that has run.
func (a *attempt) answerRan(err error) error {
	a.outcome.Err = err
	var snooze *rivertype.JobSnoozeError
	var cancel *rivertype.JobCancelError
	switch {
	case errors.As(a.err, &cancel): // River never runs the job again
	case errors.As(err, &snooze):
		a.end(resultPostponed, err)
	case a.err == nil && errors.Is(err, guard.ErrMarker): // the job is done
		return nil
	case claim.IsCutOff(a.ctx, err, a.err):
		return a.postpone(resultUnavailable, err, defaultDelay)
	}
	return err
}

// answerBusy decides what happens to a job whose key is busy.
func (a *attempt) answerBusy(err error) error {
	var b *guard.BusyError
	policy := a.m.busy
	a.outcome.Skipped = "busy"
	if errors.As(err, &b) {
		a.outcome.Label = b.Label
		if a.onceKey != a.identity && b.Key == a.onceKey {
			// A repeat has the lease of WithOnce, and may wait for the key, and not get it. What
			// became of it is known later.
			policy = Requeue
		}
	}
	if policy == Skip && len(a.job.Errors) > 0 {
		// The run that holds the key may be an earlier attempt of this job, which River has
		// rescued. Its result no longer counts, so the job must not be completed here.
		policy = Requeue
	}
	switch policy {
	case Skip:
		a.end(resultSkipped, err)
		return nil
	case Fail:
		a.end(resultBusy, err)
		return a.named("lease", err)
	default:
		return a.postpone(resultPostponed, err, a.busyDelay())
	}
}

// The delays of a job that did not run, if WithDelay sets none. The first one of a busy key is
// doubled each time, so that jobs that wait for long ask seldom.
const (
	defaultDelay = 5 * time.Second
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
func (a *attempt) postpone(r result, reason error, delay time.Duration) error {
	if a.m.every > 0 {
		delay = a.m.every
	}
	delay += rand.N(delay/4 + time.Millisecond) //nolint:gosec // jitter
	err := &PostponedError{After: delay, Reason: reason}
	a.end(r, err)
	return err
}
