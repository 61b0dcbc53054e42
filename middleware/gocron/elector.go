package guardgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

	mu     sync.Mutex
	closed bool
	latest *candidacy // begun by a call of IsLeader, or nil
	last   error      // why this process does not lead, unless it does
}

// A candidacy is one call of Candidate.Run.
type candidacy struct {
	cancel   context.CancelFunc
	answer   func()        // closes answered, once
	answered chan struct{} // closed when Elector.last is known
	ended    chan struct{} // closed when Run has returned
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
	e := &Elector{name: name}
	err := errors.Join(emptyName(name), g.Adapter().Check(nil, opts...))
	if err == nil {
		opts = append(named(g, "gocron-leader", opts), guard.WithHook(e.hook()))
		e.candidate, err = g.Candidate("gocron-leader:"+name, e.lead, opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("guardgocron: elector %q: %w", name, err)
	}
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
	busy := func(key string, by guard.StoreAnswer) {
		e.note(&guard.BusyError{Key: key, Left: by.Left, Label: by.Label})
	}
	return guard.Hook{
		// This is also called if the holder is another Elector of this process.
		Wait: func(_ context.Context, w guard.WaitEvent) { busy(w.Key, w.StoreAnswer) },
		Call: func(_ context.Context, c guard.CallEvent) {
			switch {
			case c.Op != driver.OpAcquire:
			case c.Err != nil:
				e.note(c.Err)
			case c.State == driver.Busy:
				busy(c.Key, c.StoreAnswer)
			}
		},
	}
}

// note keeps the reason why this process does not lead.
func (e *Elector) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = err
	e.latest.answer()
}

// campaign returns the candidacy under way. If there is none, it begins one: the last one has ended
// by an error that only an operator can correct, and that may be done now.
func (e *Elector) campaign() (*candidacy, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, &guard.ClosedError{Key: e.name}
	}
	if e.latest != nil {
		select {
		case <-e.latest.ended:
		default:
			return e.latest, nil
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &candidacy{cancel: cancel, answered: make(chan struct{}), ended: make(chan struct{})}
	c.answer = sync.OnceFunc(func() { close(c.answered) })
	e.latest = c
	go func() {
		defer cancel()
		err := e.candidate.Run(ctx)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.last = err
		close(c.ended)
		c.answer()
	}()
	return c, nil
}

// IsLeader returns nil if this process is the leader. It returns guard.ErrBusy if another process
// is, guard.ErrStore if the store could not be asked, and guard.ErrClosed after Close. The first
// call waits for the answer of the store, or until ctx ends. So does each call after an error that
// asking again cannot help (driver.StoreErrorKind.Permanent).
func (e *Elector) IsLeader(ctx context.Context) error {
	c, err := e.campaign()
	if err != nil {
		return err
	}
	select {
	case <-c.answered:
	case <-ctx.Done():
		return fmt.Errorf("guardgocron: elector %q: %w", e.name, context.Cause(ctx))
	}
	if _, ok := e.candidate.Leading(); ok {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return &guard.ClosedError{Key: e.name}
	case errors.Is(e.last, guard.ErrBusy):
		return fmt.Errorf("%w: %w", errFollower, e.last)
	}
	return fmt.Errorf("guardgocron: elector %q: %w", e.name, e.last)
}

// Close resigns: another process can be the leader at once. It can be called several times. It
// returns the cause of ctx if that ends before the lease was released.
func (e *Elector) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	c := e.latest
	e.mu.Unlock()
	if c == nil {
		return nil
	}
	c.cancel()
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("guardgocron: close elector %q: %w", e.name, context.Cause(ctx))
	}
}
