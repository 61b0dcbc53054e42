// Package guardcron runs the jobs of robfig/cron once for each tick, in one of all processes that
// have the same schedule.
//
//	c := cron.New()
//	jobs, err := guardcron.New(g, c)
//	_, err = jobs.AddFunc("nightly-report", "0 3 * * *", buildReport)
//	c.Start()
//	...
//	c.Stop()
//	err = jobs.Close(ctx)
//
// A lock alone is not once per tick: a short job on two machines whose clocks differ by half a
// second runs twice. Here a run is known by its tick, which is the instant that the schedule names
// and not the one at which the job happened to start; a marker that it was run stands for long
// after it, and a second lease on the job keeps two ticks from running at a time. Who finds a tick
// taken waits for it, and runs it if the process that has it dies in time.
//
// What became of each tick is on record in the store: Records says who ran it last, when, and for
// how long, and WithMissed hears of ticks that nobody ran.
//
// What it does not promise: a run that dies between its side effects and its end is run again by
// another process, within WithStartDeadline. A process that is paused for longer than its lease
// can believe for a moment that it still has it: write guard.Fence(ctx) beside what the job
// writes. Clocks may differ by less than WithTickMemory; the one that is ahead decides when a tick
// is run.
//
// Clock changes: schedules are those of cron, in its location or that of CRON_TZ. A tick in an
// hour that the change skips does not come. One in an hour that it repeats comes twice, and is run
// twice, unless WithLocalTicks says once.
package guardcron
