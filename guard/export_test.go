package guard

import (
	"maps"
	"time"
	"unsafe"

	"github.com/seed-1795987d/onerun/guard/internal/clock"
)

// HoldSize is how many bytes a holder has.
const HoldSize = unsafe.Sizeof(holder{})

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

// FillCleaner fills g's cleaner with as many orphans as it keeps. spare of them give way to
// others. empty empties the cleaner.
func FillCleaner(g *Guard, spare int) (empty func()) {
	c := &g.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range maxOrphans {
		o := &orphan{dropped: make(chan struct{})}
		if i < spare {
			c.spare[o] = struct{}{}
		} else {
			c.waiting[o] = struct{}{}
		}
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, all := range []map[*orphan]struct{}{c.waiting, c.spare} {
			maps.DeleteFunc(all, func(o *orphan, _ struct{}) bool { return o.claim.Key == "" })
		}
	}
}

// IsClosed reports whether Close was called.
func IsClosed(g *Guard) bool { return g.isClosed() }
