package guardcron

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-1795987d/onerun/guard"
)

// A Locker is a gocron.Locker for go-co-op/gocron v2, with L for gocron.Lock: this module does not
// import that one.
//
//	locker := guardcron.NewLocker[gocron.Lock](g)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// gocron asks for a lock by the name of the job (gocron.WithName: its default is the name of the
// function, which changes as code is moved), and skips the run on an error. It does not say for
// which tick the run is, so it is once at a time, and once for each tick only with
// guard.WithMinHold, longer than clocks differ and shorter than the time between two ticks:
//
//	guardcron.NewLocker[gocron.Lock](g, guard.WithMinHold(5*time.Second))
type Locker[L any] struct {
	guard *guard.Guard
	opts  []guard.Option
}

// NewLocker returns a Locker whose locks are leases of the Guard, renewed until they are given
// back. The options are those of the leases; a lock does not wait unless guard.WithWait says so. L
// must be an interface with the method Unlock(context.Context) error, as gocron.Lock is; NewLocker
// panics if it is not.
func NewLocker[L any](g *guard.Guard, opts ...guard.Option) *Locker[L] {
	if g == nil {
		panic("guardcron: NewLocker: the guard must not be nil")
	}
	if _, ok := any(&lock{}).(L); !ok {
		panic(fmt.Sprintf("guardcron: NewLocker: %T is no interface whose one method is Unlock(context.Context) error", *new(L)))
	}
	return &Locker[L]{guard: g, opts: opts}
}

// Lock takes a lease on "gocron:" and the key, or returns why not: guard.ErrBusy where another
// process has it. The end of ctx does not release it.
func (l *Locker[L]) Lock(ctx context.Context, key string) (L, error) {
	lease, err := l.guard.Acquire(context.WithoutCancel(ctx), "gocron:"+key, named(l.guard, "gocron", l.opts)...)
	if err != nil {
		var none L
		return none, fmt.Errorf("guardcron: lock %q: %w", key, err)
	}
	return any(&lock{lease}).(L), nil
}

// named returns the options, with a name if neither they nor the Guard have one.
func named(g *guard.Guard, name string, opts []guard.Option) []guard.Option {
	if g.Adapter().Name(opts...) != "" {
		return opts
	}
	return append(slices.Clip(opts), guard.WithName(name))
}

// A lock is a gocron.Lock.
type lock struct{ lease *guard.Lease }

// Unlock gives the lease back, also where ctx has ended, as that of gocron has when it shuts down.
func (l *lock) Unlock(ctx context.Context) error { return l.lease.Release(context.WithoutCancel(ctx)) }

// An Elector is a gocron.Elector for go-co-op/gocron v2: of all processes with an Elector of one
// name, one is the leader, whose scheduler runs the jobs.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// The leader remains it until it is closed, dies, or cannot renew its lease; then the first one
// that is asked after that is. A tick in between is run by nobody.
type Elector struct {
	guard *guard.Guard
	name  string
	opts  []guard.Option

	turn   chan struct{} // held by whoever asks, or gives back
	lease  *guard.Lease
	closed bool
}

// errFollower says that another process is the leader.
var errFollower = errors.New("guardcron: another process is the leader")

// NewElector returns an Elector. The options are those of the lease by which the leader is told.
// Call Close at the end, and close the Guard after that.
func NewElector(g *guard.Guard, name string, opts ...guard.Option) (*Elector, error) {
	if g == nil {
		return nil, &guard.SettingError{Setting: "guard", Reason: "must not be nil"}
	}
	e := &Elector{guard: g, name: name, opts: named(g, "gocron-leader", opts), turn: make(chan struct{}, 1)}
	if _, err := g.Wrap(e.key(), func(context.Context) error { return nil }, opts...); err != nil || name == "" {
		return nil, fmt.Errorf("guardcron: elector %q: %w", name, errors.Join(err, emptyName(name)))
	}
	return e, nil
}

func emptyName(name string) error {
	if name == "" {
		return &guard.SettingError{Setting: "name", Value: `""`, Reason: "must not be empty"}
	}
	return nil
}

func (e *Elector) key() string { return "gocron-leader:" + e.name }

// IsLeader returns nil if this process is the leader, or has become it, and else an error: one for
// which errors.Is(err, guard.ErrBusy) holds where another process is.
func (e *Elector) IsLeader(ctx context.Context) error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	switch {
	case e.closed:
		return &guard.ClosedError{Key: e.name}
	case e.lease != nil && e.lease.Valid():
		return nil
	}
	if e.lease != nil {
		_ = e.lease.Release(ctx) // it was lost
		e.lease = nil
	}
	lease, err := e.guard.Acquire(context.WithoutCancel(ctx), e.key(), e.opts...)
	switch {
	case errors.Is(err, guard.ErrBusy):
		return fmt.Errorf("%w: %w", errFollower, err)
	case err != nil:
		return fmt.Errorf("guardcron: elector %q: %w", e.name, err)
	}
	e.lease = lease
	return nil
}

// Close resigns: another process can be the leader at once. It can be called several times.
func (e *Elector) Close(ctx context.Context) error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.closed = true
	if e.lease == nil {
		return nil
	}
	lease := e.lease
	e.lease = nil
	return lease.Release(ctx)
}
