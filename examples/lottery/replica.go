package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/examples/internal/embedded"
	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A replica is one of five. They share the database and Redis.
type replica struct {
	name   string
	db     *embedded.DB[raffle]
	frozen *atomic.Bool // one of them was
}

// schedule adds the draw to c. One replica runs each tick. The others stand by, and one of them
// draws if the lease of the first one ends.
func (r *replica) schedule(g *guard.Guard, c *cron.Cron, spec string) (*guardcron.Jobs, error) {
	jobs, err := guardcron.New(g, c, guardcron.WithRerun())
	if err != nil {
		return nil, err
	}
	_, err = jobs.AddFunc("draw", spec, func(ctx context.Context) error {
		return r.report(r.draw(guard.Fence(ctx)))
	})
	return jobs, err
}

func (r *replica) report(err error) error {
	if err != nil {
		fmt.Println(r.name, "has not drawn:", err)
	}
	return err
}

// A raffle is what the database has.
type raffle struct {
	Draws   int    // that were finished
	Winners []int  // of the draws that count
	Fence   uint64 // the fence of the last draw
	Refused int    // late writes
}

var errDrawn, errStale = errors.New("it is drawn"), errors.New("another replica draws now")

// draw writes ten winners, one after the other. A process that is frozen in between loses its
// lease, and does not know. So the database compares fences: they grow with each holder.
func (r *replica) draw(fence uint64) error {
	fmt.Printf("%s draws, under fence %d\n", r.name, fence)
	if err := r.db.Update(func(row *raffle) error {
		if row.Draws > 0 {
			return errDrawn
		}
		if fence > row.Fence { // a draw that was not finished does not count
			row.Fence, row.Winners = fence, nil
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range winners {
		time.Sleep(20 * time.Millisecond)
		if i == winners/2 && r.frozen.CompareAndSwap(false, true) {
			time.Sleep(2 * ttl) // the process is frozen for longer than its lease lasts
		}
		if err := r.db.Update(func(row *raffle) error {
			if fence < row.Fence {
				row.Refused++
				return errStale
			}
			row.Winners = append(row.Winners, 1+rand.IntN(entrants))
			if i == winners-1 {
				row.Draws++
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
