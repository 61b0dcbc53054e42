// Package guardriver runs River jobs one at a time for each key, across all processes that share
// a store. The workers stay as they are.
//
//	g, err := guard.New(postgres.New(db), guard.WithNamespace("billing"))
//	byCustomer, err := guardriver.New(g, guardriver.FromJSON("customer"))
//	config.Middleware = append(config.Middleware, byCustomer) // of all kinds of jobs
//
// To guard one kind, return the middleware from the Middleware method of its worker.
//
// What happens to a job:
//
//	the KeyFunc finds its key         ErrUnguarded: it runs without a lease
//	  → acquire the key's lease       busy: WithBusy decides, after WithWait
//	                                  the store is unavailable: as Requeue, with every policy
//	  → run the worker                the job's timeout counts from here
//	  → release the lease
//
// [Requeue] is the default of [WithBusy]. It snoozes the job, as river.JobSnooze does. Neither a
// busy key nor a store that is unavailable costs an attempt or discards a job.
//
// # Why
//
// River's unique jobs are about what is inserted, not about what runs. River also takes a job for
// stuck that runs for longer than RescueStuckJobsAfter, or whose client has died, and runs it
// again; the first worker may still run. With this package, a run holds a lease on its key until
// the worker has returned.
//
// # Options
//
// Most programs need [New] and a [KeyFunc]. [WithBusy] and [WithOnce] decide what a second job of
// a key means. The other options are for special cases.
//
// # Results
//
// Hooks receive a guard.Outcome for each attempt, with the adapter "river" and one of these
// results. ctx is the job's.
//
//	ran          the worker ran under a lease; Err is what it returned, or guard.ErrLost
//	unguarded    the worker ran without a lease (ErrUnguarded)
//	done         the job is completed: its work was done before (WithOnce)
//	skipped      the job is completed: its key was busy (Skip)
//	postponed    the job comes back: its key was busy, or its worker returned river.JobSnooze
//	unavailable  the job comes back: the store was unavailable, or an outage ended its run
//	busy         the job has failed: its key was busy (Fail)
//	refused      the job has failed: no usable key, or options that cannot work
//	canceled     the job's context ended before its worker began
//
// For a job that comes back because of its key or the store, Err is a [*PostponedError].
//
// # What it does not promise
//
// It does not promise exactly-once. If a process dies before River knows that the job is
// completed, the job runs again. A process that is paused for longer than its lease can believe
// for a moment that it still holds the lease. With backend/postgres in River's own database, check
// the fence in the transaction that completes the job (postgres.Locker.CheckFence and
// river.JobCompleteTx). Otherwise, write [guard.Fence] beside what the worker writes.
package guardriver
