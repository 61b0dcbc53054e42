package guardscheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// A Result is what became of ticks, in a word. The words are few and fixed, so they can be a label
// of a metric: onerun.adapter.outcomes of package tracing, with the adapter asynq-scheduler.
type Result string

// The results.
const (
	// Enqueued means that this process has enqueued the task of the tick.
	Enqueued Result = "enqueued"
	// Duplicate means that asynq.Unique has left the tick out.
	Duplicate Result = "duplicate"
	// Missed means that no process could enqueue the ticks before the start deadline. Err is a
	// *MissedError.
	Missed Result = "missed"
	// Unavailable means that the store or the queue could not be asked for 5 s. The tick is tried
	// again all the same.
	Unavailable Result = "unavailable"
)

// An Outcome is what this process has found of a tick, or of ticks that were missed together.
type Outcome struct {
	Type, Spec string    // of the entry
	Tick       time.Time // in UTC; the first of those that were missed
	Ticks      int       // how many
	Result     Result
	Err        error // nil if it is Enqueued
}

// WithObserver calls f with each Outcome of this process. It is not called for ticks that other
// processes enqueue. Calls may come at the same time. A panic of f is ignored. Defaults to none.
func WithObserver(f func(Outcome)) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithObserver", nil, "must not be nil")
			return
		}
		s.observed = append(s.observed, f)
	}
}

// observe reports an outcome to the observers and to the Guard's hooks.
func (r *runner) observe(e *entry, o Outcome) {
	o.Type, o.Spec, o.Tick = e.task.Type(), e.spec, o.Tick.UTC()
	skipped := ""
	if o.Result == Missed {
		skipped = "missed"
	}
	r.guard.Adapter().Report(context.WithoutCancel(r.ctx), guard.Outcome{
		Adapter: "asynq-scheduler", Result: string(o.Result), Skipped: skipped, Err: o.Err,
	}, r.leaseOptions(e.task.Type())...)
	for _, f := range r.observed {
		func() {
			defer func() { _ = recover() }() // observers decide nothing
			f(o)
		}()
	}
}

// outcomeOf returns the outcome that an error of report is.
func outcomeOf(err error) Outcome {
	var missed *MissedError
	switch {
	case errors.As(err, &missed):
		return Outcome{Tick: missed.First, Ticks: missed.Ticks, Result: Missed, Err: err}
	case errors.Is(err, asynq.ErrDuplicateTask):
		return Outcome{Ticks: 1, Result: Duplicate, Err: err}
	}
	return Outcome{Ticks: 1, Result: Unavailable, Err: err}
}
