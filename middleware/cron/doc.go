// Package guardcron runs the jobs of robfig/cron once for each tick, in one of all processes that
// have the same schedule.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	c := cron.New()
//	jobs, err := guardcron.New(g, c)
//	_, err = jobs.AddFunc("nightly-report", "0 3 * * *", buildReport)
//	c.Start()
//	...
//	<-c.Stop().Done()
//	err = jobs.Close(ctx)
//
// A tick is the instant that the schedule names, and not the one at which a run starts. What
// happens to it:
//
//	the Cron fires, in each process
//	      │
//	      ▼
//	lease on the tick ──── done ─────────▶ another process has run it: nothing to do
//	"cron:job@tick"   ──── busy ─────────▶ wait in the background: if the holder dies, go on here
//	      │           ──── no answer ────▶ ask again; after the start deadline, see below
//	      │ granted
//	      ▼
//	is the job paused? ─── yes ──────────▶ Skipped
//	      │ no
//	      ▼
//	lease on the job ───── busy ─────────▶ WithOverlap: Skip leaves the tick out (Skipped), Wait
//	"cron:job"                             waits up to the start deadline, Allow needs no lease
//	      │ granted
//	      ▼
//	the function runs: its context ends if a lease is lost (Lost), after WithMaxHold (Lost), or
//	      │            when Close has waited long enough
//	      ▼
//	the outcome goes on record, which Records returns: Ran, Failed or Lost
//	the tick's lease becomes a marker, which lasts for the tick memory: no process runs it again
//	the job's lease is released
//
//	the mark of the spec is raised: all ticks up to there have an outcome
//
//	At the start of a process, and after an outage of the store, one process at a time looks for
//	ticks after the mark that have no outcome: they are run (WithCatchUp, or if a process that has
//	died had begun them and they are not too late), or reported as Missed, many in one Record. Old
//	ticks run only while no current one runs or waits.
//
// An uncontended tick makes seven calls to the store, three of them before the function runs. The
// first tick of a new job, and a run that begins late or takes more than a second, make one more:
// they are on record as Running. A process that finds a tick done makes one call.
//
// The Cron sleeps on the monotonic clock. If the wall clock is set, or the host sleeps, its timer
// is wrong. So each process looks at the clock every ten seconds, and has the Cron run what has
// come. A Cron that is stopped runs nothing.
//
// The tick memory is twice the time between two ticks, at least one hour, or three hours with
// WithLocalTicks. It is at least twice the start deadline and twice WithMaxHold, too.
//
// A lock alone does not run a job once per tick: a short job on two machines whose clocks differ
// by half a second would run twice.
//
// What it does not promise: a run that dies between its side effects and its end is run again by
// another process, within WithStartDeadline. So is one that ends while the store is away for
// longer than its lease. If a process is killed in the first second of a run, and replaced by one
// with another spec after its lease has ended, that tick is lost. A process that is paused for
// longer than its lease can believe for a moment that it still has it: write guard.Fence(ctx)
// beside what the job writes. Clocks may differ by less than the tick memory; the process that is
// ahead decides when a tick is run. While no process is up, nobody reports anything: see the
// example of a dead man's switch. A process whose clock was set far ahead leaves a mark in the
// future: until the clocks have reached it, nothing is caught up with after a start.
//
// If the schedule of a job changes, ticks count from the start of the first process that has the
// new one. Each spec has a mark of its own, which processes with another spec do not move. So the
// processes of a deployment can start, end and crash in any order. A spec that was replaced and is
// back counts anew from then on. If a process with the older spec is back, that is a roll-back once
// it alone has run ticks for a day, or for the tick memory if that is longer. Until then, the ticks
// of the newer spec count, too. If clocks differ by more than the start deadline, and by more than
// five seconds, the order of two specs can be wrong: ticks that were missed around the change can
// then go unreported, or be reported for the older spec.
//
// Clock changes: schedules are those of cron, in its location or that of CRON_TZ. A tick in an
// hour that the change skips does not come. One in an hour that it repeats comes twice, and is run
// twice, unless WithLocalTicks says once.
package guardcron
