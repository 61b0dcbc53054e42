package guard

import (
	"errors"
	"reflect"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A backend is the Locker of a Guard, and what New found out about it.
type backend struct {
	locker     Locker
	comparable bool // the Locker can be compared with another
	facts      driver.Description
	async      driver.Async      // nil if the Locker is none
	subscriber driver.Subscriber // nil if the Locker is none
	ledger     driver.Ledger     // nil if the Locker is none
	inspector  driver.Inspector  // nil if the Locker is none
}

func newBackend(l Locker) backend {
	b := backend{locker: l, comparable: reflect.ValueOf(l).Comparable(), facts: driver.Describe(l)}
	b.async, _ = l.(driver.Async)
	b.subscriber, _ = l.(driver.Subscriber)
	b.ledger, _ = l.(driver.Ledger)
	b.inspector, _ = l.(driver.Inspector)
	return b
}

// notifies reports whether the Locker notifies waiters that are not in its queue.
func (b *backend) notifies() bool { return b.subscriber != nil && !b.facts.Polls }

// A Locker stores leases, with three methods: TryAcquire, Renew and Release. The packages below
// backend/ have one each. Package driver specifies what a Locker must do, and guardtest checks it.
type Locker = driver.Locker

// MaxKey is the longest key in bytes, including the namespace.
const MaxKey = driver.MaxKey

// asStoreError returns what a Locker returned, as a *StoreError.
func asStoreError(op driver.Op, key string, err error) error {
	var store *StoreError
	if errors.As(err, &store) {
		return err
	}
	return driver.NewStoreError("", op, key, err)
}
