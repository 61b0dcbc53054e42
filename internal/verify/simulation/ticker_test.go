package simulation_test

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// tickEvery is how often the job of a world is due.
const tickEvery = 250 * time.Millisecond

// every is a schedule.
type every time.Duration

// Next implements cron.Schedule.
func (e every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// A ticker is robfig/cron in a process, with the job of which each tick is run once by all.
type ticker struct {
	worker *worker
	cron   *cron.Cron
	jobs   *guardcron.Jobs
}

func newTicker(p *process) *ticker {
	k := &ticker{worker: newWorker(p, workers)}
	// All processes fire at one instant. A moment that differs gives them an order.
	apart := cron.WithChain(func(job cron.Job) cron.Job {
		rng := p.world.rng(p.name + " ticks")
		return cron.FuncJob(func() {
			time.Sleep(upTo(rng, time.Millisecond))
			job.Run()
		})
	})
	k.cron = cron.New(apart, cron.WithLogger(cron.DiscardLogger))
	var err error
	k.jobs, err = guardcron.New(p.guard, k.cron, guardcron.WithStartDeadline(time.Second), guardcron.WithObserver(k.ended),
		guardcron.WithLease(guard.WithTTL(siteTTL)))
	if err != nil {
		panic(err)
	}
	if _, err := k.jobs.Schedule("job", every(tickEvery), k.run); err != nil {
		panic(err)
	}
	return k
}

// loop runs the job until the last tick for which all is well.
func (k *ticker) loop() {
	time.Sleep(upTo(k.worker.rng, 20*time.Millisecond))
	k.cron.Start()
	time.Sleep(time.Until(k.worker.world.lastTick().Add(2 * time.Second)))
	<-k.cron.Stop().Done()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := k.jobs.Close(ctx); err != nil {
		k.worker.world.violate("I5", "the jobs of %s: %v", k.worker.process.name, err)
	}
}

// lastTick is one that comes when the last fault is over.
func (w *world) lastTick() time.Time {
	return every(tickEvery).Next(w.start.Add(chaos + 4*longestTTL))
}

// wasLate reports whether a tick was left out because the run of the tick before it still went on:
// the last faults had delayed that run.
func (w *world) wasLate(tick time.Time) bool {
	_, skipped := w.skippedTicks.Load(tickKey(tick))
	return skipped && w.spans.was(tickKey(tick.Add(-tickEvery)))
}

func tickKey(tick time.Time) string {
	return "cron:job@" + tick.UTC().Format(time.RFC3339Nano)
}

// run is the job.
func (k *ticker) run(ctx context.Context) error {
	w := k.worker
	time.Sleep(upTo(w.rng, 100*time.Microsecond)) // not at the very instant at which another ends
	lease, _ := guard.FromContext(ctx)
	if !lease.Valid() {
		return errWork
	}
	tick, _ := guardcron.Tick(ctx)
	b := w.world.beliefs.begin(ctx, w.name, lease)
	w.world.spans.begin(tickKey(tick), w.name, tick)
	time.Sleep(upTo(w.rng, 40*time.Millisecond))
	if lease.Valid() {
		w.world.resource.write(b, lease)
	}
	return nil
}

// ended is called for each run that has ended here. If a release of the tick had no answer, its
// marker may be missing.
func (k *ticker) ended(r guardcron.Record) {
	w := k.worker.world
	w.trace.add("%s has handled the tick at %v: %s", k.worker.name, r.Tick.Sub(w.start), r.Result)
	if r.Result == guardcron.Skipped {
		w.skippedTicks.Store(tickKey(r.Tick), true)
	}
	if r.Result != guardcron.Ran {
		return
	}
	key := tickKey(r.Tick)
	w.spans.successful(key, "")
	if w.spans.answered(key) {
		w.tally.ticks.Add(1)
		w.spans.close(key, span{"tick", fmt.Sprint(k.worker.name, " had run it"), r.End, r.End.Add(time.Hour)})
	}
}
