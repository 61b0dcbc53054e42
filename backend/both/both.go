// Package both is a driver.Locker on two others at once. It moves a fleet of processes from one
// backend, server or layout of keys to another, and at no moment can two processes hold a key.
//
//	old := single.New(oldRedis)
//	next := reentrant.New(newRedis)
//	g, err := guard.New(both.New(old, next))
//
// Deploy three times. All processes use old at first, then both, and then next. A process of one
// stage and a process of the next one exclude each other, because both use a backend in common. A
// process with old alone and one with next alone do not. So begin a stage when the one before it
// is complete.
//
// A claim is granted if both backends grant it. The old one is asked first. It is renewed and
// released on both. A lease that either has lost is lost, and a key is done if either says so. The
// fence of a lease is larger than all earlier fences of the key on either backend, and both know
// it. If the clocks of their servers show about the same time, a claim takes one call to each of
// them. Otherwise it takes a third call, which raises the lower fence.
//
// A done marker, or a minimum hold, that was left before the second stage is on the old backend
// alone. So stay in the second stage for as long as the longest of these lasts.
//
// Claims cannot share a key, and there are no fair queues (guard.WithShared, guard.WithLimit,
// guard.WithFair). Package inspect refuses the backend: use it on old or next. If either backend
// cannot be asked, nothing is granted.
package both

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker keeps each lease on two backends. It is safe for concurrent use.
type Locker struct {
	sides [2]side
	gates gates
	err   error
}

// A side is one of the two backends.
type side struct {
	driver.Locker
	name string // for errors
}

// The indexes of the sides.
const (
	old = iota
	next
)

var (
	_ driver.Locker     = (*Locker)(nil)
	_ driver.Async      = (*Locker)(nil)
	_ driver.Describer  = (*Locker)(nil)
	_ driver.Warner     = (*Locker)(nil)
	_ driver.Subscriber = (*Locker)(nil)
	_ driver.Ledger     = (*Locker)(nil)
)

// New returns a Locker on the backend that a fleet leaves and the one to which it moves. All
// processes must name them in this order, also to move back. They must not keep their leases under
// the same names on the same server. guard.New refuses nil, and one Locker twice.
func New(from, to driver.Locker) *Locker {
	return &Locker{
		sides: [2]side{{from, "the old backend"}, {to, "the next backend"}},
		err:   check(from, to),
	}
}

func check(from, to driver.Locker) error {
	for name, l := range map[string]driver.Locker{"from": from, "to": to} {
		if driver.IsNil(l) {
			return &driver.SettingError{Setting: name, Reason: "must not be nil"}
		}
		if err := driver.Describe(l).Err; err != nil {
			return fmt.Errorf("both: %s: %w", name, err)
		}
	}
	if v := reflect.ValueOf(from); v.Comparable() && reflect.TypeOf(from) == reflect.TypeOf(to) && from == to {
		return &driver.SettingError{Setting: "to", Reason: "must not be the same Locker as from"}
	}
	return nil
}

// Describe implements driver.Describer. The Locker accepts a key that both backends accept. It
// keeps owners if both do, because otherwise one of them refuses a second claim of an owner.
func (l *Locker) Describe() driver.Description {
	if l.err != nil {
		return driver.Description{Name: "both", Err: l.err}
	}
	from, to := driver.Describe(l.sides[old].Locker), driver.Describe(l.sides[next].Locker)
	return driver.Description{
		Name:   "both",
		Owners: from.Owners && to.Owners,
		CheckKey: func(key string) error {
			if err := from.CheckKey(key); err != nil {
				return err
			}
			return to.CheckKey(key)
		},
	}
}

// Close closes both backends, if they have Close. See single.Locker.Close.
func (l *Locker) Close() error {
	return errors.Join(driver.Close(l.sides[old].Locker), driver.Close(l.sides[next].Locker))
}

// Warnings implements driver.Warner. It asks both backends.
func (l *Locker) Warnings(ctx context.Context) (all []error) {
	for _, s := range l.sides {
		if w, ok := s.Locker.(driver.Warner); ok {
			all = append(all, w.Warnings(ctx)...)
		}
	}
	return all
}

// error returns the error of a call to a side.
func (s side) error(op driver.Op, key string, err error) *driver.StoreError {
	failed := driver.NewStoreError("both", op, key, fmt.Errorf("%s: %w", s.name, err))
	var inner *driver.StoreError
	if errors.As(err, &inner) {
		failed.Kind, failed.Addr, failed.Revoked = inner.Kind, inner.Addr, inner.Revoked
	}
	return failed
}
