package guard

import (
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

// RenewLate renews l by a request that is overdue before it is sent, and reports that only after
// the answer. late is how much later than due it is sent.
func RenewLate(l *Lease, late time.Duration) {
	g, t := l.holder.guard, l.holder.storeLease
	g.mu.Lock()
	now := g.clock.Now()
	r := newRenewal(t, now)
	report := r.setOverdue(now)
	g.mu.Unlock()
	time.Sleep(late)
	g.renew([]*renewal{r})
	report()
}

// Queues returns how many queues g has: one for each key with waiters or a holder in this process.
func Queues(g *Guard) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queues.Len()
}

// FillCleaner fills g's cleaner with as many orphans as it keeps. droppable of them give way to
// others. Only those that one more orphan is compared with, or replaces, exist: using another one
// panics. empty empties the cleaner.
func FillCleaner(g *Guard, droppable int) (empty func()) {
	c := &g.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = true
	c.waiting, c.droppable = make(orphanHeap, maxOrphans-droppable), make(orphanHeap, droppable)
	for i := len(c.waiting); i > 0; {
		i = (i - 1) / 2
		c.waiting[i] = &orphan{}
	}
	if droppable > 0 {
		c.droppable[droppable-1] = &orphan{state: orphanAnswered}
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running, c.waiting, c.droppable = false, nil, nil
	}
}

// IsClosed reports whether Close was called.
func IsClosed(g *Guard) bool { return g.isClosed() }
