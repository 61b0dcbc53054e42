package guardcron

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// A Control shows the jobs of all processes that share a store, pauses them, and has them run. It
// needs no Cron, and may be in another program than the jobs. It is safe for concurrent use.
type Control struct {
	guard  *guard.Guard
	ledger driver.Ledger
	ahead  atomic.Int64 // of the clock, as a time.Duration, in tests
}

// NewControl returns a Control of the jobs whose Guards share the store and the namespace of g. The
// Guard needs guard.WithNamespace or guard.WithoutNamespace, and its backend must be a
// driver.Ledger, as all backends of this module are. NewControl does not ask the store.
func NewControl(g *guard.Guard) (*Control, error) {
	if g == nil {
		return nil, refused.Setting("guard", "nil", "must not be nil")
	}
	err := g.Adapter().Check(nil)
	ledger, ok := g.Adapter().Ledger()
	if !ok {
		err = errors.Join(err, refused.Setting("guard", "", "must have a store that is a driver.Ledger"))
	}
	if err != nil {
		return nil, err
	}
	return &Control{guard: g, ledger: ledger}, nil
}

func (c *Control) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// The store keeps when a job was last paused or resumed, as a counter: twice the milliseconds since
// 1970, and 1 more while it is paused. Another counter has the milliseconds at which the pause
// began. A pause that ends by itself has one more, whose name contains the number of the first
// counter, for its end. All of them are lasting: a pause ends when it should, also after years.
const (
	pauses   = driver.Lasting + "pauses"
	pausedAt = driver.Lasting + "paused"
	pauseEnd = driver.Lasting + "until "
)

// Pause keeps all processes from starting the job for a tick, for d by the clocks of the processes,
// or until Resume if d is 0. It replaces an earlier pause. Runs that have begun continue, and
// RunNow and Trigger still run the job. Ticks that are due meanwhile are recorded as Skipped, even
// if no process is up then, and they are not caught up with. A process that cannot ask the store
// whether the job is paused does not start it.
//
// by names who pauses the job: package inspect shows that (inspect.Inspector.Operations). An error
// is a *guard.SettingError, or that of the store.
func (c *Control) Pause(ctx context.Context, name string, d time.Duration, by inspect.By) error {
	var until time.Time
	switch {
	case d < 0 || d > 0 && d < time.Millisecond:
		return ofJob(name, refused.Setting("Pause", d.String(), "must be 0, or at least 1ms"))
	case d > 0:
		until = c.now().Add(d)
	}
	return c.change(ctx, inspect.Operation{Action: inspect.ActionPause, Job: name, For: d}, by, func() error {
		return c.setPause(ctx, name, true, until)
	})
}

// Resume ends a Pause. Its errors are those of Pause.
func (c *Control) Resume(ctx context.Context, name string, by inspect.By) error {
	return c.change(ctx, inspect.Operation{Action: inspect.ActionResume, Job: name}, by, func() error {
		return c.setPause(ctx, name, false, time.Time{})
	})
}

// change makes a change to a job that an operator asks for, and puts it on record.
func (c *Control) change(ctx context.Context, o inspect.Operation, by inspect.By, do func() error) error {
	_, err := inspect.Change(ctx, c.guard, o, by, func() (bool, error) { return true, do() })
	return ofJob(o.Job, err)
}

// ofJob returns an error that names the job, or nil.
func ofJob(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("guardcron: job %q: %w", name, err)
}

// Paused reports whether a job is paused. It asks the store.
func (c *Control) Paused(ctx context.Context, name string) (bool, error) {
	p, err := lastPause(ctx, c.ledger, name)
	return p.lasts(c.now()), ofJob(name, err)
}

// A pause is the last one of a job. It is zero if there was none.
type pause struct {
	number int64     // even if it was ended by Resume
	to     time.Time // when it ends or has ended
}

// lasts reports whether the job is paused.
func (p pause) lasts(now time.Time) bool { return p.number%2 == 1 && now.Before(p.to) }

// forever is the end of a pause that does not end by itself.
var forever = time.UnixMilli(math.MaxInt64 / int64(time.Millisecond))

// lastPause returns the last pause of a job. The ledger bounds how long that takes.
func lastPause(ctx context.Context, ledger driver.Ledger, job string) (pause, error) {
	all, err := lastPauses(ctx, ledger, []string{job})
	if err != nil {
		return pause{}, err
	}
	return all[0], nil
}

// lastPauses returns the last pauses of jobs, of which there is one at least. It reads all of them
// at once, and then the ends of those that have begun.
func lastPauses(ctx context.Context, ledger driver.Ledger, jobs []string) ([]pause, error) {
	names, counters := make([]string, len(jobs)), slices.Repeat([]string{pauses}, len(jobs))
	for i, job := range jobs {
		names[i] = ledgerName(job)
	}
	numbers, err := ledger.CountersOf(ctx, names, counters)
	if err != nil {
		return nil, err
	}
	all := make([]pause, len(jobs))
	var begun []*pause
	names, counters = nil, nil
	for i, n := range numbers {
		if n > 0 {
			all[i] = pause{n, time.UnixMilli(n / 2)}
		}
		if n%2 == 1 {
			all[i].to = forever
			begun, names, counters = append(begun, &all[i]), append(names, ledgerName(jobs[i])), append(counters, pauseEnd+strconv.FormatInt(n, 10))
		}
	}
	if len(begun) == 0 {
		return all, nil
	}
	ends, err := ledger.CountersOf(ctx, names, counters)
	for i, end := range ends {
		if end > 0 {
			begun[i].to = time.UnixMilli(end)
		}
	}
	return all, err
}

// setPause pauses a job until an instant, or until Resume if the instant is zero. If pause is
// false, it resumes the job.
func (c *Control) setPause(ctx context.Context, name string, pause bool, until time.Time) error {
	last, err := lastPause(ctx, c.ledger, name)
	was := last.lasts(c.now())
	if err != nil || !pause && !was {
		return err
	}
	at := max(c.now().UnixMilli(), last.number/2+1)
	to := 2 * at
	if pause {
		to++
	}
	if pause && !was {
		if _, err = c.ledger.Raise(ctx, ledgerName(name), pausedAt, at); err != nil {
			return err
		}
	}
	if !until.IsZero() {
		if _, err = c.ledger.Raise(ctx, ledgerName(name), pauseEnd+strconv.FormatInt(to, 10), until.UnixMilli()); err != nil {
			return err
		}
	}
	_, err = c.ledger.Raise(ctx, ledgerName(name), pauses, to)
	return err
}
