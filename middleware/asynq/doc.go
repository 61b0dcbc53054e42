// Package guardasynq runs asynq tasks one at a time for each key, across all processes that share
// a store. The handlers stay as they are.
//
//	key := guardasynq.FromJSON("customer")
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	byCustomer, err := guardasynq.New(g, key, guardasynq.WithClient(client, inspector))
//	mux.Handle("charge", byCustomer(h))
//	server := asynq.NewServer(redisOpt, guardasynq.Configure(config))
//
// What happens to a task:
//
//	the KeyFunc finds its key         ErrUnguarded: it runs without a lease
//	  → acquire the key's lease       busy: WithBusy decides, after WithWait
//	                                  the store is unavailable: as Requeue, with every policy
//	  → run the handler               Snooze: it comes back later
//	  → release the lease             the next task of the key comes, in any process
//
// [Requeue] is the default of [WithBusy]. It returns the task to the queue, and wakes it when a run
// of its key ends. Neither a busy key, a store that is unavailable, nor [Snooze] costs an attempt
// or archives a task.
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
// # Results
//
// Hooks receive a guard.Outcome for each delivery, with the adapter "asynq" and one of these
// results. ctx is the task's.
//
//	ran          the handler ran under a lease; Err is what it returned, or guard.ErrLost
//	unguarded    the handler ran without a lease (ErrUnguarded)
//	done         the task has ended: its work was done before (WithOnce)
//	skipped      the task has ended: its key was busy (Skip)
//	coalesced    the task has ended: another run covers it
//	postponed    the task comes back: its key was busy, or its handler returned Snooze
//	unavailable  the task comes back: the store was unavailable, or an outage ended its run
//	busy         the task has failed: its key was busy (Fail)
//	refused      the task has failed: no usable key, or options that cannot work
//	canceled     asynq gave the task up before its handler began
//
// For a task that comes back, Err is a [*PostponedError].
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
