package guard

import (
	"reflect"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A backend is the Locker of a Guard, and what New found out about it.
type backend struct {
	locker     Locker
	comparable bool // the Locker can be compared with another
	facts      driver.Description
	batch      driver.BatchRenewer // nil if the Locker is none
	subscriber driver.Subscriber   // nil if the Locker is none
}

func newBackend(l Locker) backend {
	b := backend{locker: l, comparable: reflect.ValueOf(l).Comparable(), facts: driver.Describe(l)}
	b.batch, _ = driver.Ability[driver.BatchRenewer](l)
	b.subscriber, _ = driver.Ability[driver.Subscriber](l)
	return b
}

// notifies reports whether the Locker notifies waiters that are not in its queue.
func (b *backend) notifies() bool { return b.subscriber != nil && !b.facts.Polls }
