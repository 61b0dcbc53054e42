package guardcron

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// The store keeps when a job was last paused or resumed, as a counter: twice the milliseconds since
// 1970, and 1 more while it is paused. Another counter has the milliseconds of the last Pause.
const (
	pauses   = "pauses"
	pausedAt = "paused"
)

// Pause keeps all processes from starting the job for a tick, until Resume. Runs that have begun
// continue, and RunNow still runs the job. Ticks that are due meanwhile are recorded as Skipped,
// also if no process is up then, and they are not caught up with. A process that cannot ask the
// store whether the job is paused does not start it. The error is that of the store.
func (j *Jobs) Pause(ctx context.Context, name string) error { return j.turn(ctx, name, true) }

// Resume ends a Pause. The error is that of the store.
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
		at := max(j.now().UnixMilli(), n/2+1)
		to := 2 * at
		if paused {
			to++
			_, err = j.ledger.Raise(ctx, ledgerName(name), pausedAt, at)
		}
		if err == nil {
			_, err = j.ledger.Raise(ctx, ledgerName(name), pauses, to)
		}
	}
	if err != nil {
		return fmt.Errorf("guardcron: job %q: %w", name, err)
	}
	return nil
}

// lastPause returns from when on the job was last paused, and until when. Both are 0 if it never
// was.
func (b *job) lastPause(ctx context.Context) (from, to time.Time, err error) {
	n, err := b.jobs.ledger.Raise(ctx, ledgerName(b.name), pauses, 0)
	if err != nil || n == 0 {
		return time.Time{}, time.Time{}, err
	}
	at, err := b.jobs.ledger.Raise(ctx, ledgerName(b.name), pausedAt, 0)
	if to = time.UnixMilli(n / 2); n%2 == 1 {
		to = time.UnixMilli(math.MaxInt64 / int64(time.Millisecond))
	}
	return time.UnixMilli(at), to, err
}

// RunNow runs a job by hand, in this process and for no tick, and returns the error of the job. It
// holds the lease of the job, as ticks do. If the job is running, RunNow returns guard.ErrBusy with
// Skip, waits until ctx ends with Wait, and runs at the same time with Allow. The run is recorded.
func (j *Jobs) RunNow(ctx context.Context, name string) error {
	b, err := j.find(name)
	if err != nil {
		return err
	}
	if !j.begin() {
		return fmt.Errorf("guardcron: job %q: %w", name, &guard.ClosedError{Key: name})
	}
	defer j.end()
	return b.byHand(ctx)
}
