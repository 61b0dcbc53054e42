package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seed-1795987d/onerun/examples/internal/stage"
	"github.com/seed-1795987d/onerun/guard"
)

const (
	winnersPerRound = 10
	suspense        = 30 * time.Millisecond // between two winners
)

// What a replica says to the director.
const (
	wordReady    = "ready"    // and asks for the time of the first round, in milliseconds
	wordHalfway  = "halfway"  // and asks for leave to go on with the round
	wordFinished = "finished" // with all rounds
)

// A replica is one of the processes. The exported fields are what the director tells it.
type replica struct {
	Name   string
	Rounds int
	Every  time.Duration // from one round to the next
	Clock  time.Duration // what its clock is ahead of the true time in the first round
	Drift  time.Duration // what is added to that from each round to the next

	Guarded   bool
	Backend   stage.Backend
	Namespace string
	Database  string
	TTL, Wait time.Duration

	// Asks has it ask in mid-draw for leave to go on, which gives the director time to kill it.
	Asks bool

	parent *stage.Parent
	guard  *guard.Guard
	db     database
}

// main is the process. It returns the exit code.
func (r *replica) main(ctx context.Context, parent *stage.Parent) int {
	r.parent = parent
	if err := r.run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", r.Name, err)
		return 1
	}
	return 0
}

func (r *replica) run(ctx context.Context) (err error) {
	db, err := stage.OpenDatabase(r.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	r.db = database{db}

	locker, disconnect := r.Backend.Connect()
	defer disconnect()
	if r.guard, err = r.newGuard(locker); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.guard.Close(ctx)) }()

	if err := r.fireAll(ctx); err != nil {
		return err
	}
	r.parent.Tell(wordFinished, "")
	return nil
}

// fireAll fires each round when the replica's own clock says that it is time.
func (r *replica) fireAll(ctx context.Context) error {
	answer, err := r.parent.Ask(wordReady, "")
	if err != nil {
		return err
	}
	var first int64
	if _, err := fmt.Sscan(answer, &first); err != nil {
		return fmt.Errorf("the time of the first round: %w", err)
	}
	for round := 1; round <= r.Rounds; round++ {
		due := time.UnixMilli(first).Add(time.Duration(round-1) * r.Every)
		select {
		case <-time.After(due.Sub(r.now(round))):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := r.sayHow(round, r.fire(ctx, round)); err != nil {
			return err
		}
	}
	return nil
}

// now is what the replica's clock says before the round.
func (r *replica) now(round int) time.Time {
	return time.Now().Add(r.Clock + time.Duration(round-1)*r.Drift)
}

func (r *replica) sayThatItDraws(round int, fence uint64) {
	if fence == 0 {
		r.parent.Say("round %d: draws, without a lease", round)
		return
	}
	r.parent.Say("round %d: draws, under fence %d", round, fence)
}

// sayHow says how a round went. It returns errors that are none of those one has to expect.
func (r *replica) sayHow(round int, err error) error {
	var busy *guard.BusyError
	var done *guard.DoneError
	switch {
	case err == nil:
		r.parent.Say("round %d: has drawn %d winners", round, winnersPerRound)
	case errors.As(err, &busy):
		r.parent.Say("round %d: skips, busy: held by %s, for %.1f s more unless renewed", round, busy.Label, busy.Left.Seconds())
	case errors.As(err, &done):
		r.parent.Say("round %d: skips, done: drawn by %s", round, done.Record)
	case errors.Is(err, errDrawn):
		r.parent.Say("round %d: skips, %v", round, err)
	case errors.Is(err, guard.ErrLost):
		r.parent.Say("round %d: leaves it to another: %v", round, err)
	default:
		return err
	}
	return nil
}

// sayThatItWaits is the Wait of a guard.Hook.
func (r *replica) sayThatItWaits(_ context.Context, e guard.Event) {
	r.parent.Say("waits for %s: held by %s", e.Key, e.Label)
}

// mayBeKilled is called in mid-draw, when n winners have been written.
func (r *replica) mayBeKilled(round, n int) error {
	if !r.Asks {
		return nil
	}
	r.parent.Say("round %d: has written %d of %d winners", round, n, winnersPerRound)
	_, err := r.parent.Ask(wordHalfway, "%d", round)
	return err
}
