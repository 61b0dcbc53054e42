package guardasynq

import (
	"context"
	"time"
)

// A Result is what became of a delivery of a task. The results are few and fixed, fit for a
// metric.
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
	// ResultPostponed means that the key was busy, or that the handler has asked for it (Postpone;
	// there is a Fence then), and that the task, or a copy of it, comes back.
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

// An Outcome is what became of a delivery, with the details. There is no key in it.
type Outcome struct {
	Result Result
	// Name is the kind of work, Type the task's type, Queue its queue.
	Name, Type, Queue string
	// Fence is the lease's, if the handler ran under one.
	Fence uint64
	// After is how long it takes at most until a task that did not run comes back, and Copy the ID
	// under which, if it is another one.
	After time.Duration
	Copy  string
	// Aborted says that the handler panicked or ended its goroutine.
	Aborted bool
	// Duration is how long the delivery took.
	Duration time.Duration
	// Err is why, where there is more to say: what the handler returned, guard.ErrLost for a run
	// whose lease was lost, also if the handler returned nil, guard.ErrStore, ErrNotConfigured.
	Err error
}

// An Observer is told what becomes of tasks: for metrics and logs.
type Observer struct {
	// End is called once for each delivery, before the middleware returns, also where the handler
	// panicked. ctx is the task's. It may be nil.
	End func(ctx context.Context, o Outcome)
}

// contained calls f, and ignores that it panics: observers report and decide nothing.
func contained(f func()) {
	defer func() { _ = recover() }()
	f()
}
