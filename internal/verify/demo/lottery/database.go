package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

var (
	// errDrawn says that the round was drawn before.
	errDrawn = errors.New("the database says that it is drawn")
	// errStale says that another replica has begun to draw, under a higher fence.
	errStale = errors.New("the database refused a stale fence")
)

// The buckets of the database.
const (
	bucketRounds  = "rounds"  // for each round, the highest fence under which a draw has begun
	bucketWinners = "winners" // winners, in their order
	bucketDraws   = "draws"   // the draws that were finished, in their order
)

// entrants is how many take part. They are numbered from 1 on.
const entrants = 500

// A winner counts if the draw of the same replica and fence was finished.
type winner struct {
	Entrant int
	drawing
}

// A drawing is a draw that was begun, and may have been finished.
type drawing struct {
	Round   int
	Replica string
	Fence   uint64
}

// database is the lottery's data.
type database struct{ *stage.Database }

// begin begins to draw the round, unless it is drawn. From here on, nothing is written under a
// lower fence.
func (db database) begin(ctx context.Context, round int, fence uint64) error {
	return db.change(ctx, round, func(tx *bbolt.Tx, highest uint64) error {
		draws, err := stage.All[drawing](tx, bucketDraws)
		switch {
		case err != nil:
			return err
		case slices.ContainsFunc(draws, func(d drawing) bool { return d.Round == round }):
			return errDrawn
		case highest > fence:
			return errStale
		}
		return stage.Put(tx, bucketRounds, strconv.Itoa(round), fence)
	})
}

// pick draws n of the entrants.
func pick(n int) (picked []int) {
	for _, at := range rand.Perm(entrants)[:n] {
		picked = append(picked, at+1)
	}
	return picked
}

// addWinner writes a winner. The winner does not count until finish is called.
func (db database) addWinner(ctx context.Context, entrant int, d drawing) error {
	return db.append(ctx, d, bucketWinners, winner{entrant, d})
}

// finish makes what the replica wrote under the fence the winners of the round.
func (db database) finish(ctx context.Context, d drawing) error {
	return db.append(ctx, d, bucketDraws, d)
}

// append writes a value, or returns errStale if the fence is no longer the round's. The comparison
// and the write are one transaction.
func (db database) append(ctx context.Context, d drawing, bucket string, value any) error {
	return db.change(ctx, d.Round, func(tx *bbolt.Tx, highest uint64) error {
		if highest != d.Fence {
			return errStale
		}
		return stage.Append(tx, bucket, value)
	})
}

// change runs f in a transaction, with the fence of the round.
func (db database) change(ctx context.Context, round int, f func(tx *bbolt.Tx, fence uint64) error) error {
	err := db.Update(ctx, func(tx *bbolt.Tx) error {
		fence, err := stage.Get[uint64](tx, bucketRounds, strconv.Itoa(round))
		if err != nil {
			return err
		}
		return f(tx, fence)
	})
	if err != nil {
		return fmt.Errorf("round %d: %w", round, err)
	}
	return nil
}

// books are the winners and the finished draws.
type books struct {
	winners []winner
	draws   []drawing
}

// books reads all winners and finished draws.
func (db database) books(ctx context.Context) (b books, err error) {
	err = db.View(ctx, func(tx *bbolt.Tx) (err error) {
		if b.winners, err = stage.All[winner](tx, bucketWinners); err != nil {
			return err
		}
		b.draws, err = stage.All[drawing](tx, bucketDraws)
		return err
	})
	if err != nil {
		return books{}, fmt.Errorf("read the books: %w", err)
	}
	return b, nil
}
