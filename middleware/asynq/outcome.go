package guardasynq

import (
	"context"
	"time"
)

// A Result is what became of a delivery of a task. The results are few and fixed, fit for a metric.
type Result string

// The results.
const (
	ResultRan         Result = "ran"         // the handler ran under a lease
	ResultDone        Result = "done"        // the key's work was done before (WithOnce): the task has ended
	ResultSkipped     Result = "skipped"     // the key was busy, and the task has ended (Skip)
	ResultCoalesced   Result = "coalesced"   // the key was busy, and another run will do for this task (Coalesce)
	ResultPostponed   Result = "postponed"   // the key was busy, and the task, or a copy of it, comes back
	ResultUnavailable Result = "unavailable" // the guard's store could not be asked, or the Guard was closed: the task, or a copy, comes back
	ResultBusy        Result = "busy"        // the key was busy, and the task has failed (Fail)
	ResultKeyInvalid  Result = "key_invalid" // there was no key, and the task has failed
	ResultRefused     Result = "refused"     // WithTaskLease gave an option that cannot work, and the task has failed
	ResultCanceled    Result = "canceled"    // asynq had given the task up before it was its turn
)

// An Outcome is what became of a delivery, with the details. There is no key in it.
type Outcome struct {
	Result Result
	// Name is the kind of work, Type the task's type, Queue its queue.
	Name, Type, Queue string
	// Fence is the lease's, if the handler ran under one.
	Fence uint64
	// After is how long it takes at most until a task that did not run comes back, and Copy the ID under which, if it is another one.
	After time.Duration
	Copy  string
	// Aborted says that the handler panicked or ended its goroutine.
	Aborted bool
	// Duration is how long the delivery took.
	Duration time.Duration
	// Err is why, where there is more to say: what the handler returned, guard.ErrLost for a run whose lease was lost, also if the handler returned nil,
	// guard.ErrStore, ErrNotConfigured.
	Err error
}

// An Observer is told what becomes of tasks: for metrics and logs.
type Observer struct {
	// End is called once for each delivery, before the middleware returns, also where the handler panicked. ctx is the task's. It may be nil.
	End func(ctx context.Context, o Outcome)
}

// contained calls f, and ignores that it panics: observers report and decide nothing.
func contained(f func()) {
	defer func() { _ = recover() }()
	f()
}
