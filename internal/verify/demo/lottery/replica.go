package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

const (
	winnersPerRound = 10
	suspense        = 30 * time.Millisecond // between two winners
)

// What a replica says to the director.
const (
	wordReady    = "ready"    // and asks for the time of the first round
	wordHalfway  = "halfway"  // and asks for leave to go on with the round
	wordFinished = "finished" // with all rounds
)

// A replica is one of the processes. The exported fields are what the director tells it.
type replica struct {
	Name   string
	Behind time.Duration // of its clock, in the first round
	Drift  time.Duration // what is added to that from each round to the next
	timetable

	Guarded   bool
	Backend   stage.Backend
	Namespace string
	Database  string
	TTL       time.Duration

	// Asks has it ask in mid-draw for leave to go on, which gives the director time to kill it.
	Asks bool

	parent *stage.Parent
	db     database
	over   context.CancelFunc      // all rounds are
	fail   context.CancelCauseFunc // ends the replica with an error
	ended  sync.Map                // the rounds that this replica has drawn, or knows to be drawn
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
	ctx, r.fail = context.WithCancelCause(ctx)
	defer r.fail(nil)

	r.db = database{stage.OpenDatabase(r.Database)}

	locker, disconnect := r.Backend.Connect()
	defer disconnect()
	g, err := r.newGuard(locker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(ctx)) }()

	if err := r.askForTheTime(); err != nil {
		return err
	}
	if err := r.runCron(ctx, g); err != nil {
		return err
	}
	r.parent.Tell(wordFinished, "")
	return nil
}

func (r *replica) askForTheTime() error {
	r.parent.Say("is pid %d, and its clock is %d ms behind", os.Getpid(), r.Behind.Milliseconds())
	answer, err := r.parent.Ask(wordReady, "")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(answer, &r.First); err != nil {
		return fmt.Errorf("the time of the first round: %w", err)
	}
	return nil
}

// runCron returns when all rounds are over for this replica.
func (r *replica) runCron(ctx context.Context, g *guard.Guard) (err error) {
	playing, over := context.WithCancel(ctx)
	r.over = over
	c := cron.New(cron.WithSeconds(), cron.WithChain(r.byItsClock()))
	jobs, err := r.newJobs(g, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, jobs.Close(ctx)) }()
	if err := r.schedule(ctx, c, jobs); err != nil {
		return err
	}

	c.Start()
	<-playing.Done()
	select {
	case <-c.Stop().Done():
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// byItsClock gives the replica a clock of its own. All replicas are on one machine, where cron
// fires all of them at once: each starts what was fired when its own clock would have fired it.
func (r *replica) byItsClock() cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			time.Sleep(r.Behind + time.Duration(r.round(time.Now())-1)*r.Drift)
			job.Run()
		})
	}
}

// end is called when this replica has nothing left to do in a round.
func (r *replica) end(round int) {
	r.ended.Store(round, true)
	for n := range rounds {
		if _, ended := r.ended.Load(n + 1); !ended {
			return
		}
	}
	r.over()
}

// skips is called with the end of each tick, by the hook of the Guard. Elsewhere means that another
// replica has run it: this one has stood by.
func (r *replica) skips(_ context.Context, o guard.Outcome) {
	_, tick, _ := strings.Cut(o.Label, "@")
	tick, _, _ = strings.Cut(tick, " ")
	at, err := time.Parse(time.RFC3339, tick)
	if o.Result != "elsewhere" || err != nil {
		return
	}
	if round := r.round(at); round <= rounds {
		r.parent.Say("round %d: skips, after %.2f s: another one has drawn it", round, o.Duration.Seconds())
		r.end(round)
	}
}

// fire is what cron fires, once for each round or five times. The error is nil if the round is
// drawn.
func (r *replica) fire(ctx context.Context, round int) error {
	if round > rounds {
		return nil // cron was too late to be stopped in time
	}
	defer r.end(round)
	err := r.draw(ctx, round)
	switch {
	case err == nil:
		r.parent.Say("round %d: has drawn %d winners", round, winnersPerRound)
	case errors.Is(err, errDrawn):
		r.parent.Say("round %d: skips, %v", round, err)
		return nil
	case errors.Is(err, errStale), errors.Is(context.Cause(ctx), guard.ErrLost):
		r.parent.Say("round %d: leaves it to another: %v", round, err)
	default:
		r.fail(err)
	}
	return err
}

// heed receives the outcomes of the ticks of this replica. The play cannot go on after a tick that
// did not run before its deadline, because the store did not answer or the job did not end.
func (r *replica) heed(record guardcron.Record) {
	if slices.Contains([]guardcron.Result{guardcron.Missed, guardcron.Skipped, guardcron.Unavailable}, record.Result) {
		r.fail(fmt.Errorf("round %d was %s: %s", r.round(record.Tick), record.Result, record.Reason))
	}
}

func (r *replica) sayThatItDraws(round int, fence uint64) {
	if fence == 0 {
		r.parent.Say("round %d: draws, without a lease", round)
		return
	}
	r.parent.Say("round %d: draws, under fence %d", round, fence)
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
