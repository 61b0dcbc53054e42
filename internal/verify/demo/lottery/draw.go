package main

import (
	"context"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// newGuard makes the Guard: every replica has one, over the same Redis. The locker is
// single.New(client), or what else -backend names, see stage.Backend.
func (r *replica) newGuard(locker guard.Locker) (*guard.Guard, error) {
	return guard.New(locker,
		guard.WithNamespace(r.Namespace), // other runs use this Redis, too
		// how soon another may take over from a replica that has died
		guard.WithTTL(r.TTL),
		guard.WithHook(guard.Hook{Outcome: r.skips}),
	)
}

// newJobs is all that it takes to have cron guarded.
func (r *replica) newJobs(g *guard.Guard, c *cron.Cron) (*guardcron.Jobs, error) {
	return guardcron.New(g, c,
		// for so long the others stand by, to take over if the one that draws dies
		guardcron.WithStartDeadline(30*time.Second),
		guardcron.WithRerun(), // or fails
		// a round is never left out, however long the one before it takes
		guardcron.WithOverlap(guardcron.Wait),
		guardcron.WithObserver(r.heed), // where alerts go
	)
}

// schedule has cron fire the draw: the same entry, with a guard and without.
func (r *replica) schedule(ctx context.Context, c *cron.Cron, jobs *guardcron.Jobs) (err error) {
	if !r.Guarded {
		_, err = c.AddFunc(r.spec(), func() { _ = r.fire(ctx, r.round(time.Now())) })
		return err
	}
	_, err = jobs.AddFunc(jobName, r.spec(), func(ctx context.Context) error {
		// the same instant in all replicas, whatever their clocks show
		tick, _ := guardcron.Tick(ctx)
		return r.fire(ctx, r.round(tick))
	})
	return err
}

// jobName is what all replicas know the job by.
const jobName = "draw"

// draw draws the round's winners and writes them down, one after the other. The check in front is
// what programs without a guard rely on. It is of use only after another draw is over.
func (r *replica) draw(ctx context.Context, round int) error {
	// The fence grows with each holder of the lease. The database takes nothing from a replica
	// once one with a higher fence has begun. Without a guard it is 0 for all.
	fence := guard.Fence(ctx)

	if err := r.db.begin(ctx, round, fence); err != nil {
		return err
	}
	r.sayThatItDraws(round, fence)
	this := drawing{round, r.Name, fence}
	for i, entrant := range pick(winnersPerRound) {
		time.Sleep(suspense)
		if i == winnersPerRound/2 {
			if err := r.mayBeKilled(round, i); err != nil {
				return err
			}
		}
		if err := r.db.addWinner(ctx, entrant, this); err != nil {
			return err
		}
	}
	return r.db.finish(ctx, this)
}
