package guardcron

import (
	"context"
	"fmt"

	"github.com/seed-1795987d/onerun/guard"
)

// The store keeps how often a job was paused and resumed, as a counter: odd while it is paused.
const pauses = "pauses"

// Pause has no process start the job for a tick until Resume. Runs that are under way go on, and
// RunNow runs it all the same. Ticks that come meanwhile are recorded as Skipped, and not caught
// up with. A process that cannot find out whether the job is paused does not start it either. It
// asks the store.
func (j *Jobs) Pause(ctx context.Context, name string) error { return j.turn(ctx, name, true) }

// Resume ends a Pause.
func (j *Jobs) Resume(ctx context.Context, name string) error { return j.turn(ctx, name, false) }

// Paused reports whether a job is paused. It asks the store.
func (j *Jobs) Paused(ctx context.Context, name string) (bool, error) {
	paused, err := j.paused(ctx, name)
	if err != nil {
		return false, fmt.Errorf("guardcron: job %q: %w", name, err)
	}
	return paused, nil
}

func (j *Jobs) paused(ctx context.Context, name string) (bool, error) {
	n, err := j.ledger.Raise(ctx, ledgerName(name), pauses, 0)
	return n%2 == 1, err
}

func (j *Jobs) turn(ctx context.Context, name string, paused bool) error {
	n, err := j.ledger.Raise(ctx, ledgerName(name), pauses, 0)
	if err == nil && (n%2 == 1) != paused {
		_, err = j.ledger.Raise(ctx, ledgerName(name), pauses, n+1)
	}
	if err != nil {
		return fmt.Errorf("guardcron: job %q: %w", name, err)
	}
	return nil
}

// RunNow runs a job by hand, in this process and for no tick, and returns what it returns. It
// holds the lease of the job, as ticks do: with Skip it fails with guard.ErrBusy if the job runs,
// with Wait it waits for that until ctx ends, and with Allow it runs beside it. The run is
// recorded.
func (j *Jobs) RunNow(ctx context.Context, name string) error {
	j.mu.Lock()
	b := j.jobs[name]
	j.mu.Unlock()
	if b == nil {
		return fmt.Errorf("guardcron: there is no job %q", name)
	}
	if !j.begin() {
		return fmt.Errorf("guardcron: job %q: %w", name, &guard.ClosedError{Key: name})
	}
	defer j.end()
	return b.byHand(ctx)
}
