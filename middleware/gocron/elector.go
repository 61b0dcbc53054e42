package guardgocron

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-1795987d/onerun/guard"
)

// An Elector is a gocron.Elector for go-co-op/gocron v2: of all processes with an Elector of one
// name, one is the leader, whose scheduler runs the jobs.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// A leader leads until it is closed, dies, or cannot renew its lease. The next Elector that gocron
// asks then leads. No process runs the ticks in between. An Elector is safe for concurrent use.
type Elector struct {
	guard *guard.Guard
	name  string
	opts  []guard.Option

	slot   chan struct{} // held by the call that acquires or releases
	lease  *guard.Lease
	closed bool
}

// errFollower says that another process is the leader.
var errFollower = errors.New("guardgocron: another process is the leader")

// NewElector returns an Elector. The options are those of the leader's lease. Call Close at the
// end, and close the Guard after that.
//
// The Guard needs guard.WithNamespace or guard.WithoutNamespace. An option that cannot work is a
// *guard.SettingError: guard.WithOnce, and what would allow several leaders (guard.WithOwner,
// guard.WithShared, guard.WithLimit).
func NewElector(g *guard.Guard, name string, opts ...guard.Option) (*Elector, error) {
	if g == nil {
		return nil, &guard.SettingError{Setting: "guard", Reason: "must not be nil"}
	}
	e := &Elector{guard: g, name: name, opts: named(g, "gocron-leader", opts), slot: make(chan struct{}, 1)}
	_, err := g.Wrap(e.key(), func(context.Context) error { return nil }, append(slices.Clip(opts), guard.WithLimit(0))...)
	if err = errors.Join(err, emptyName(name), g.Adapter().Check(unusedByLeaders, opts...)); err != nil {
		return nil, fmt.Errorf("guardgocron: elector %q: %w", name, err)
	}
	return e, nil
}

// unusedByLeaders are the options that an Elector cannot honor, and why.
var unusedByLeaders = map[string]string{
	"WithOnce":      "has no effect here: a leader does not finish",
	"WithOwner":     "would allow several leaders",
	"WithOwnerFrom": "would allow several leaders",
	"WithLimit":     "would allow several leaders",
	"WithShared":    "would allow several leaders",
}

func emptyName(name string) error {
	if name == "" {
		return &guard.SettingError{Setting: "name", Value: `""`, Reason: "must not be empty"}
	}
	return nil
}

func (e *Elector) key() string { return "gocron-leader:" + e.name }

// IsLeader returns nil if this process is the leader, or has become it. It returns guard.ErrBusy
// if another process is the leader, guard.ErrStore if the store could not be asked, and
// guard.ErrClosed after Close.
func (e *Elector) IsLeader(ctx context.Context) error {
	e.slot <- struct{}{}
	defer func() { <-e.slot }()
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
		return fmt.Errorf("guardgocron: elector %q: %w", e.name, err)
	}
	e.lease = lease
	return nil
}

// Close resigns: another process can be the leader at once. It can be called several times.
func (e *Elector) Close(ctx context.Context) error {
	e.slot <- struct{}{}
	defer func() { <-e.slot }()
	e.closed = true
	if e.lease == nil {
		return nil
	}
	lease := e.lease
	e.lease = nil
	return lease.Release(ctx)
}
