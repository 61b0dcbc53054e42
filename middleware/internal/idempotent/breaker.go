package idempotent

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

const (
	// openPatience is how long a call waits for the store if it can run without a lease.
	openPatience = 250 * time.Millisecond
	// openPause is how long the store is not asked again after it has not answered.
	openPause = time.Second
)

// A breaker keeps calls that can run without a lease (WithFailOpen) from asking a store that does
// not answer: one call asks in each openPause.
type breaker struct {
	epoch time.Time
	next  atomic.Int64 // when to ask again, in nanoseconds since the epoch; 0 if the store answers
	open  error        // for calls that do not ask
}

// allows reports whether to ask the store.
func (b *breaker) allows() bool {
	now := time.Since(b.epoch)
	next := b.next.Load()
	return next == 0 || int64(now) >= next && b.next.CompareAndSwap(next, int64(now+openPause))
}

// note notes the result of asking the store.
func (b *breaker) note(err error) {
	switch {
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrMarker):
		b.next.Store(int64(time.Since(b.epoch) + openPause))
	case b.next.Load() != 0 && !errors.Is(err, context.Canceled):
		b.next.Store(0)
	}
}
