// Package guardgocron has a Locker and an Elector for go-co-op/gocron v2.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	locker, err := guardgocron.NewLocker[gocron.Lock](g, guard.WithMinHold(5*time.Second))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// Warning: gocron does not tell a Locker for which tick a run is. So a Locker keeps runs of a job
// from overlapping, but it cannot run each tick once:
//
//   - Without guard.WithMinHold, a process whose clock is behind takes the lock after a short run
//     has ended, and runs the same tick again. The hold must be longer than clocks differ and
//     shorter than the time between two ticks.
//   - If the process that has the lock dies, nobody runs its tick again, and nobody reports it.
//   - A run that lasts into the next tick makes all processes skip that one.
//   - A job with gocron.DurationJob has ticks of its own in each process.
//
// Use robfig/cron with middleware/cron (package guardcron) if each tick counts: it knows the tick
// of each run, takes over from processes that die, and reports what nobody ran. An Elector is the
// better choice of the two here: one process runs all ticks. What is due between the end of one
// leader and the next is lost.
package guardgocron
