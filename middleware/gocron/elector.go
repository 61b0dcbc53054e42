package guardgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Elector is a gocron.Elector for go-co-op/gocron v2: of all processes with an Elector of one
// name, one is the leader, whose scheduler runs the jobs. It is a guard.Candidate.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// It campaigns from the first call of IsLeader on. A leader leads until it is closed, dies, or
// cannot renew its lease. Another process then leads at once, or when the lease has ended. No
// process runs the ticks in between. An Elector is safe for concurrent use.
type Elector struct {
	candidate *guard.Candidate
	name      string
	cancel    context.CancelFunc
	run       func()                // campaigns, once
	last      atomic.Pointer[error] // why this process does not lead, unless it does
	answer    func()                // closes answered, once
	answered  chan struct{}         // closed when last is known
	ended     chan struct{}         // closed when the candidacy is over
}

// errFollower says that another process is the leader.
var errFollower = errors.New("guardgocron: another process is the leader")

// NewElector returns an Elector. The options are those of the leader's lease, see guard.Candidate.
// Call Close at the end, and close the Guard after that.
//
// The Guard needs guard.WithNamespace or guard.WithoutNamespace. An option that cannot work is a
// *guard.SettingError, see Guard.Candidate.
func NewElector(g *guard.Guard, name string, opts ...guard.Option) (*Elector, error) {
	if g == nil {
		return nil, &guard.SettingError{Setting: "guard", Reason: "must not be nil"}
	}
	e := &Elector{name: name, answered: make(chan struct{}), ended: make(chan struct{})}
	e.answer = sync.OnceFunc(func() { close(e.answered) })
	err := errors.Join(emptyName(name), g.Adapter().Check(nil, opts...))
	if err == nil {
		opts = append(named(g, "gocron-leader", opts), guard.WithHook(e.hook()))
		e.candidate, err = g.Candidate("gocron-leader:"+name, e.lead, opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("guardgocron: elector %q: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	e.run = sync.OnceFunc(func() {
		go func() {
			defer close(e.ended)
			e.note(e.candidate.Run(ctx))
		}()
	})
	return e, nil
}

func emptyName(name string) error {
	if name == "" {
		return &guard.SettingError{Setting: "name", Value: `""`, Reason: "must not be empty"}
	}
	return nil
}

// lead is the function of the Candidate.
func (e *Elector) lead(ctx context.Context) error {
	e.note(guard.ErrBusy) // as soon as the term has ended
	<-ctx.Done()
	return nil
}

// hook returns a hook that notes why this process does not lead.
func (e *Elector) hook() guard.Hook {
	busy := func(_ context.Context, c guard.Event) {
		e.note(&guard.BusyError{Key: c.Key, Left: c.Left, Label: c.Label})
	}
	return guard.Hook{
		Wait: busy, // also if the holder is another Elector of this process
		Call: func(ctx context.Context, c guard.Event) {
			switch {
			case c.Op != driver.OpAcquire:
			case c.Err != nil:
				e.note(c.Err)
			case c.State == guard.Busy:
				busy(ctx, c)
			}
		},
	}
}

func (e *Elector) note(err error) {
	e.last.Store(&err)
	e.answer()
}

// IsLeader returns nil if this process is the leader. It returns guard.ErrBusy if another process
// is, guard.ErrStore if the store could not be asked, and guard.ErrClosed after Close. The first
// call waits for the answer of the store, or until ctx ends.
func (e *Elector) IsLeader(ctx context.Context) error {
	e.run()
	select {
	case <-e.answered:
	case <-ctx.Done():
		return fmt.Errorf("guardgocron: elector %q: %w", e.name, context.Cause(ctx))
	}
	if _, ok := e.candidate.Leading(); ok {
		return nil
	}
	err := *e.last.Load()
	switch {
	case errors.Is(err, context.Canceled):
		return &guard.ClosedError{Key: e.name}
	case errors.Is(err, guard.ErrBusy):
		return fmt.Errorf("%w: %w", errFollower, err)
	}
	return fmt.Errorf("guardgocron: elector %q: %w", e.name, err)
}

// Close resigns: another process can be the leader at once. It can be called several times. It
// returns the cause of ctx if that ends before the lease was released.
func (e *Elector) Close(ctx context.Context) error {
	e.cancel()
	e.run() // so that it ends
	select {
	case <-e.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("guardgocron: close elector %q: %w", e.name, context.Cause(ctx))
	}
}
