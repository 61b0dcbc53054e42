// Package guardscheduler enqueues the asynq task of each tick once, in however many processes the
// scheduler runs. It is asynq's Scheduler and PeriodicTaskManager for any number of replicas.
//
//	scheduler, err := guardscheduler.New(g, redisOpt, nil) // as asynq.NewScheduler, with a Guard
//	_, err = scheduler.Register("0 3 * * *", asynq.NewTask("nightly-report", nil))
//	err = scheduler.Run()
//
// A tick is the instant for which an entry is due, not the instant at which a process gets to it.
// This is what becomes of one, in each process:
//
//	the clock shows the tick
//	  → acquire the tick's lease     done or enqueued before: that was it
//	  → enqueue the task             its ID names the tick: a second one is refused
//	  → release, and leave a marker  others find it for WithTickMemory
//	  → raise the entry's mark       up to which ticks need no care, also after a restart
//	if the store or the queue cannot be asked: the same again in a second
//	if the tick is older than WithStartDeadline by then: WithCatchUp enqueues it all the same,
//	or it is reported as missed
//
// The mark is in the store. So a scheduler that was down, all its replicas at once, goes on where
// it was. A change of the spec starts anew.
//
// There is no WithHistory, as package guardcron has it: the task of a tick is its record. Its ID
// names the tick, and asynq.Retention sets for how long asynq keeps it, with its result. A tick
// without a task is reported as a *MissedError. asynq's own history of an entry
// (Inspector.ListSchedulerEnqueueEvents) stays empty. asynq keeps it under an ID that is another
// one in each process, and only asynq's Scheduler can write to it.
//
// What it does not promise. The clock that is ahead decides when a tick is enqueued; clocks that
// differ by more than WithTickMemory less WithStartDeadline enqueue it twice. A process that is
// killed between the enqueueing and the marker leaves the task, whose ID keeps the next process
// from enqueueing it again. If the task is handled and forgotten by then, a TTL of the lease
// later, it is enqueued twice; asynq.Retention of a minute closes that gap. A process whose clock
// was set far ahead leaves a mark in the future: while the clocks have not come there, nothing is
// caught up with.
package guardscheduler
