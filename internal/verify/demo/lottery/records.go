package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// historyShown is how many records are asked for: as many as are kept.
const historyShown = 100

// sayWhoRanWhat prints what the replicas have left on record of the rounds, which anybody can read
// who has the same store.
func (d *director) sayWhoRanWhat(ctx context.Context) (err error) {
	if !d.run.Guarded {
		return nil
	}
	locker, disconnect := d.run.Backend.Connect()
	defer disconnect()
	g, err := guard.New(locker, guard.WithNamespace(d.run.Namespace))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(ctx)) }()
	jobs, err := guardcron.New(g, cron.New())
	if err != nil {
		return err
	}
	records, err := jobs.Records(ctx, jobName, historyShown)
	for _, r := range slices.Backward(records) {
		if d.round(r.Tick) > rounds {
			continue // cron goes on until the last replica has stopped it
		}
		// A run whose process was killed is "lost", once another replica has taken over.
		d.run.Say("on record", "round %d, of %s: %s, by %s, under fence %d",
			d.round(r.Tick), r.Tick.Local().Format(time.TimeOnly), r.Result, r.Who, r.Fence)
	}
	return err
}
