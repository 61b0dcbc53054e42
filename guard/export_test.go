package guard

import (
	"time"
	"unsafe"

	"github.com/seed-1795987d/onerun/guard/internal/clock"
)

// HoldSize is how many bytes a hold has.
const HoldSize = unsafe.Sizeof(hold{})

// SetSuspended makes g call suspended to learn how long the host has been suspended.
func SetSuspended(g *Guard, suspended func() time.Duration) {
	g.clock.Suspension = func(clock.Bound) time.Duration { return suspended() }
}

// Queues returns how many queues g has: one for each key with waiters or a holder in this process.
func Queues(g *Guard) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queues.Len()
}

// IsClosed reports whether Close was called.
func IsClosed(g *Guard) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
