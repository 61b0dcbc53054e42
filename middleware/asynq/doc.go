// Package guardasynq runs asynq tasks one at a time for each key, across all processes that share
// a store, while the handlers stay as they were.
//
//	key := guardasynq.ByJSON("customer")
//	byCustomer, err := guardasynq.New(g, key, guardasynq.WithClient(client, inspector))
//	mux.Handle("charge", byCustomer(h))
//	guardasynq.Configure(&config) // last, so that it wraps your own IsFailure and the like
//
// asynq delivers at least once. A worker that dies, stalls, runs into its timeout or shuts down
// late leaves a handler running while the task is given to another one, and asynq.Unique guards
// the queue, not the run. Here a run holds a lease on its key until the handler has returned, also
// after asynq has given the task up.
//
// This is what happens to a task:
//
//	the KeyFunc finds its key         ErrUnguarded: it runs without a lease
//	  → acquire the key's lease       busy: wait in the worker, if others are idle
//	  → run the handler               Postpone: it comes back later
//	  → release the lease             the next task of the key starts, in any process
//	busy after the wait: WithBusy decides. RetryLater, the default, gives the task back to the
//	queue, and brings it back when a run of its key ends
//	the store is away: as RetryLater, with every policy
//
// Neither a busy key, a store that is away, nor Postpone costs an attempt or archives a task.
//
// Most programs need New, a KeyFunc, WithClient and Configure. WithBusy and WithOnce are for what
// a second task of a key means. The rest is for special cases: WithWait, WithDelay, WithGroup,
// WithLease, WithTaskLease, WithLogger, WithObserver.
//
// Package guardscheduler, in middleware/asynq/scheduler, enqueues the task of each tick once,
// however many replicas of the scheduler there are.
//
// What it does not promise: exactly-once. A process that dies before asynq knows that the task is
// done leaves a task that runs again, and one that is paused for longer than its lease can believe
// for a moment that it still has it. Write guard.Fence(ctx) beside what the handler writes, and
// WithOnce keeps out repeats of what has ended well.
package guardasynq
