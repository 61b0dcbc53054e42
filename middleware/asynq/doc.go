// Package guardasynq runs asynq tasks one at a time for each key, across all processes that share
// a store. The handlers stay as they are.
//
//	key := guardasynq.ByJSON("customer")
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	byCustomer, err := guardasynq.New(g, key, guardasynq.WithClient(client, inspector))
//	mux.Handle("charge", byCustomer(h))
//	guardasynq.Configure(&config) // last, so that it wraps your own IsFailure and the like
//
// What happens to a task:
//
//	the KeyFunc finds its key         ErrUnguarded: it runs without a lease
//	  → acquire the key's lease       busy: wait in the worker, if others are idle
//	                                  still busy: WithBusy decides
//	                                  the store is away: as RetryLater, with every policy
//	  → run the handler               Postpone: it comes back later
//	  → release the lease             the next task of the key starts, in any process
//
// [RetryLater] is the default of [WithBusy]. It returns the task to the queue, and brings it back
// when a run of its key ends. Neither a busy key, a store that is away, nor [Postpone] costs an
// attempt or archives a task.
//
// # Why
//
// asynq delivers at least once. If a worker dies, stalls, runs into its timeout or shuts down
// late, asynq gives its task to another worker, and the first handler may still run.
// [asynq.Unique] guards the queue, not the run. With this package, a run holds a lease on its key
// until the handler has returned, even after asynq has given up the task.
//
// # Options
//
// Most programs need [New], a [KeyFunc], [WithClient] and [Configure]. [WithBusy] and [WithOnce]
// decide what a second task of a key means. The other options are for special cases.
//
// Package guardscheduler, in middleware/asynq/scheduler, enqueues the task of each tick once, in
// any number of replicas of the scheduler.
//
// # What it does not promise
//
// It does not promise exactly-once. If a process dies before asynq knows that the task is done,
// the task runs again. A process that is paused for longer than its lease can believe for a moment
// that it still holds the lease. Write [guard.Fence] beside what the handler writes. [WithOnce]
// keeps out repeats of tasks that have succeeded.
package guardasynq
