// Package guardscheduler enqueues the asynq task of each tick once, in however many processes the
// scheduler runs. It is asynq's Scheduler and PeriodicTaskManager for any number of replicas.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	scheduler, err := guardscheduler.New(g, redisOpt, nil) // as asynq.NewScheduler, with a Guard
//	_, err = scheduler.Register("0 3 * * *", asynq.NewTask("nightly-report", nil))
//	err = scheduler.Run()
//
// A tick is the instant for which an entry is due, not the instant at which a process gets to it.
// What happens to a tick, in each process:
//
//	the clock shows the tick
//	  → acquire the tick's lease     done, or enqueued before: nothing to do
//	  → enqueue the task             its ID names the tick: a second one is refused
//	  → release, and leave a marker  others find it for an hour, or twice WithStartDeadline
//	  → raise the entry's mark       ticks up to it need no care, also after a restart
//	the store or the queue cannot be asked: all of this again in a second
//	the tick is older than WithStartDeadline by then: WithCatchUp enqueues it all the same,
//	or it is reported as a *MissedError
//
// The store keeps the mark. If all replicas of a scheduler were down at once, it continues where
// it was.
//
// Each spec of a task has marks of its own, which no process with another spec moves. A new spec
// starts when it is registered, and enqueues what the previous one has left until then. While old
// and new processes run, the ticks of both specs are enqueued, and a tick of both once. The newest
// spec has all of its ticks since it started, whatever processes with an older one do. An older
// spec that is back has no ticks of the time since its last one, if it came before the newer spec
// or before ticks of that. Between ticks, a process writes nothing.
//
// A config that a Manager's provider leaves out for a while starts anew when it is back.
//
// # Daylight saving time
//
// Ticks are instants. A spec is read in the Location of the SchedulerOpts, UTC by default, or in
// that of CRON_TZ. If clocks are put forward, a daily tick in the hour that is left out does not
// come. If they are put back, one in the hour that is repeated comes twice, as two ticks. Use UTC,
// or an hour that no change touches.
//
// # History
//
// There is no WithHistory, as package guardcron has it: the task of a tick is its record. Its ID
// names the tick. [asynq.Retention] sets how long asynq keeps the task, with its result. A tick
// without a task is reported as a [*MissedError].
//
// asynq's own history of an entry ([asynq.Inspector.ListSchedulerEnqueueEvents]) stays empty.
// asynq keeps it under an ID that differs in each process, and only asynq's Scheduler can write to
// it.
//
// # What it does not promise
//
// The clock that is ahead decides when a tick is enqueued. If clocks differ by more than half an
// hour, the tick can be enqueued twice.
//
// A process that is killed between the enqueueing and the marker leaves the task. The task's ID
// keeps the next process from enqueueing it again. That process comes a TTL of the lease later. If
// the task has been handled and forgotten by then, it is enqueued twice. An asynq.Retention of a
// minute prevents that.
//
// A process whose clock was set far ahead leaves a mark in the future. Until the clocks have
// reached it, nothing is caught up with.
package guardscheduler
