package guardasynq

import (
	"context"
	"time"
)

// A Result is the final result of a delivery of a task. The results are few and fixed, so they can
// be a label of a metric.
type Result string

// The results.
const (
	// ResultRan means that the handler ran under a lease.
	ResultRan Result = "ran"
	// ResultUnguarded means that the handler ran without a lease (ErrUnguarded).
	ResultUnguarded Result = "unguarded"
	// ResultDone means that the key's work was done before (WithOnce). The task has ended.
	ResultDone Result = "done"
	// ResultSkipped means that the key was busy, and that the task has ended (Skip).
	ResultSkipped Result = "skipped"
	// ResultCoalesced means that another run covers this task: the key was busy (Coalesce), or the
	// task is a copy and there is another one of the original's ID.
	ResultCoalesced Result = "coalesced"
	// ResultPostponed means that the key was busy, or that the handler has postponed the task
	// (Postpone), of which there is a Fence then. The task, or a copy of it, comes back.
	ResultPostponed Result = "postponed"
	// ResultUnavailable means that the guard's store could not be asked, that the Guard was closed,
	// or that the task lost the lease of WithOnce while it waited for its key. It also means that
	// an outage of the store ended the run, of which there is a Fence then. The task, or a copy of
	// it, comes back.
	ResultUnavailable Result = "unavailable"
	// ResultBusy means that the key was busy, and that the task has failed (Fail).
	ResultBusy Result = "busy"
	// ResultKeyInvalid means that the task has no usable key, and has failed.
	ResultKeyInvalid Result = "key_invalid"
	// ResultRefused means that WithTaskLease gave an option that cannot work. The task has failed.
	ResultRefused Result = "refused"
	// ResultCanceled means that asynq gave the task up before its handler began.
	ResultCanceled Result = "canceled"
)

// An Outcome is a Result with its details. It contains no key.
type Outcome struct {
	Result Result
	// Name is the kind of work, Type the task's type, Queue its queue.
	Name, Type, Queue string
	// Fence is the lease's, if the handler ran under one.
	Fence uint64
	// After is how long it takes at most until a task that did not run comes back. Copy is the ID
	// under which it comes back, if that is another one.
	After time.Duration
	Copy  string
	// Aborted says that the handler panicked or ended its goroutine.
	Aborted bool
	// Duration is how long the delivery took.
	Duration time.Duration
	// Err is the reason, if there is more to say: what the handler returned, guard.ErrStore or
	// ErrNotConfigured. It is guard.ErrLost for a run whose lease was lost, even if the handler
	// returned nil.
	Err error
}

// An Observer receives the outcome of each delivery of a task, for metrics and logs.
type Observer struct {
	// End is called once for each delivery, before the middleware returns, even if the handler
	// panicked. ctx is the task's. It may be nil.
	End func(ctx context.Context, o Outcome)
}

// contained calls f, and ignores that it panics: observers report and decide nothing.
func contained(f func()) {
	defer func() { _ = recover() }()
	f()
}
