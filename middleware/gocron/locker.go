package guardgocron

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker is a gocron.Locker, with L for gocron.Lock: this module does not import gocron.
//
//	locker, err := guardgocron.NewLocker[gocron.Lock](g, guard.WithMinHold(5*time.Second))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// gocron asks for a lock by the name of the job, and skips the run on an error. Name each job with
// gocron.WithName. The default is the name of the function. It changes as code is moved, and all
// jobs that a loop makes have the same one. They then share one lock, so that each runs at some of
// its ticks only. A Locker that finds two such jobs reports it once for each name, by Hook.Outcome
// with the result "misconfigured", and says it in the error of Lock. A Locker is safe for
// concurrent use. See the package documentation for what a Locker cannot
// promise.
type Locker[L any] struct {
	guard *guard.Guard
	opts  []guard.Option
	names names
}

// NewLocker returns a Locker whose locks are leases of the Guard, which are renewed until they are
// released. The options are those of the leases; a lock does not wait unless guard.WithWait says
// so. L must be an interface with the method Unlock(context.Context) error, as gocron.Lock is.
//
// What cannot work is a *guard.SettingError: another L, a Guard that has neither
// guard.WithNamespace nor guard.WithoutNamespace, an option that cannot work, and one that has no
// effect on a lock: guard.WithOnce, guard.WithMargin and guard.WithOwner.
func NewLocker[L any](g *guard.Guard, opts ...guard.Option) (*Locker[L], error) {
	if g == nil {
		return nil, &guard.SettingError{Setting: "guard", Reason: "must not be nil"}
	}
	err := errors.Join(g.Adapter().Check(unusedInLocks, opts...), g.Check("gocron", opts...))
	if _, ok := any(&lock{}).(L); !ok {
		err = errors.Join(err, &guard.SettingError{
			Setting: "L", Value: reflect.TypeFor[L]().String(), Reason: "must be an interface whose one method is Unlock(context.Context) error",
		})
	}
	if err != nil {
		return nil, fmt.Errorf("guardgocron: locker: %w", err)
	}
	return &Locker[L]{guard: g, opts: append(named(g, "gocron", opts), g.Adapter().Detached())}, nil
}

// unusedInLocks are the options that a Locker cannot honor, and why.
var unusedInLocks = map[string]string{
	"WithOnce":      "has no effect here: gocron does not tell a Locker whether a run has succeeded",
	"WithMargin":    "has no effect here: gocron gives a job no context that could end with the lock",
	"WithOwner":     "would let all processes have a lock at the same time",
	"WithOwnerFrom": "would let all processes have a lock at the same time",
}

// keyPrefix is what the key of a lock begins with, behind the namespace.
const keyPrefix = "gocron:"

// PlainKeys returns a function for single.WithPlainKeys that maps the key of a job's lock to the
// name of the job alone. That is where gocron-redis-lock, and its redsync, have their lock. So
// processes with it and processes with a Locker exclude each other:
//
//	plain := single.WithPlainKeys(guardgocron.PlainKeys("billing"))
//	g, err := guard.New(single.New(rdb, plain), guard.WithNamespace("billing"))
//
// The namespace is that of the Guard, or "" if it has guard.WithoutNamespace. Locks of another
// namespace are refused by a *guard.KeyError, because they would exclude nobody. Keys that
// are of no Locker stay as they are. If the old locker has a prefix (redislock.WithKeyPrefix), put
// it before the result.
func PlainKeys(namespace string) func(key string) string {
	return func(stored string) string {
		of, key := driver.SplitNamespace(stored)
		job, ok := strings.CutPrefix(key, keyPrefix)
		switch {
		case !ok:
			return stored
		case of != namespace:
			return "" // single refuses it
		}
		return job
	}
}

// Lock acquires a lease on "gocron:" and the key. It returns guard.ErrBusy if another process
// holds it. The end of ctx ends the wait of guard.WithWait. It does not end the lease, which gocron
// releases by Unlock.
func (l *Locker[L]) Lock(ctx context.Context, key string) (L, error) {
	shared, first := l.names.note(ctx, key)
	if first {
		l.guard.Adapter().Report(ctx, guard.Outcome{
			Adapter: "gocron", Result: "misconfigured", Refused: fmt.Errorf("guardgocron: job %q: %w", key, errSharedName),
		}, l.opts...)
	}
	lease, err := l.guard.Acquire(ctx, keyPrefix+key, l.opts...)
	if err != nil && shared {
		err = fmt.Errorf("%w: %w", errSharedName, err)
	}
	if err != nil {
		var none L
		return none, fmt.Errorf("guardgocron: lock %q: %w", key, err)
	}
	return any(&lock{lease}).(L), nil
}

// named returns the options, with a name if neither they nor the Guard have one.
func named(g *guard.Guard, name string, opts []guard.Option) []guard.Option {
	if g.Adapter().Name(opts...) != "" {
		return slices.Clip(opts)
	}
	return append(slices.Clip(opts), guard.WithName(name))
}

// A lock is a gocron.Lock.
type lock struct{ lease *guard.Lease }

// Unlock releases the lease, even if ctx has ended, as that of gocron has when it shuts down.
func (l *lock) Unlock(ctx context.Context) error { return l.lease.Release(context.WithoutCancel(ctx)) }
