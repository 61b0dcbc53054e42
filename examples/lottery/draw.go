package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// newGuard is all that it takes: every replica makes one, over the same Redis. The locker is single.New(client), or
// what else -backend names, see stage.Backend.
func (r *replica) newGuard(locker guard.Locker) (*guard.Guard, error) {
	return guard.New(locker,
		guard.WithNamespace(r.Namespace),                   // other runs use this Redis, too
		guard.WithLabel(r.Name),                            // what those read who find the key busy
		guard.WithTTL(r.TTL),                               // how soon another may take over from a replica that has died
		guard.WithHook(guard.Hook{Wait: r.sayThatItWaits}), // for the reader of this program
	)
}

// fire is what the schedule of each replica calls. It draws the round, or returns why not.
func (r *replica) fire(ctx context.Context, round int) error {
	if !r.Guarded {
		return r.draw(ctx, round)
	}
	return r.guard.Do(ctx, fmt.Sprintf("draw:%d", round),
		func(ctx context.Context) error { return r.draw(ctx, round) },
		guard.WithOnce(time.Hour), // a replica that comes when it is over must not draw again: no clock is an hour late
		guard.WithWait(r.Wait),    // 0: skip what another one is drawing; longer: stand by to take over
	)
}

// draw draws the round's winners and writes them down, one after the other. The check in front is what
// programs without a guard rely on. It is of use only after another draw is over.
func (r *replica) draw(ctx context.Context, round int) error {
	// The fence grows with each holder of the lease. The database takes nothing from a replica once one with
	// a higher fence has begun. Without a guard it is 0 for all.
	fence := guard.Fence(ctx)

	if err := r.db.begin(ctx, round, fence); err != nil {
		return err
	}
	r.sayThatItDraws(round, fence)
	entrants, err := r.db.pick(ctx, winnersPerRound)
	if err != nil {
		return err
	}
	for i, entrant := range entrants {
		time.Sleep(suspense)
		if i == winnersPerRound/2 {
			if err := r.mayBeKilled(round, i); err != nil {
				return err
			}
		}
		if err := r.db.addWinner(ctx, round, entrant, r.Name, fence); err != nil {
			return err
		}
	}
	if err := r.db.finish(ctx, round, r.Name, fence); err != nil {
		return err
	}
	if lease, ok := guard.FromContext(ctx); ok {
		return lease.SetRecord([]byte(r.Name)) // for those who find the round done
	}
	return nil
}
