package simulation_test

import (
	"sync"

	"github.com/seed-1795987d/onerun/guard"
)

// A resource is what the workers write to. It refuses a fence that is lower than one it has seen.
type resource struct {
	world *world

	mu      sync.Mutex
	highest map[string]*belief // by key
	alone   map[string]*belief // by key, of those that hold it alone
}

// write offers a write under a lease that was valid when the worker last asked.
func (r *resource) write(b *belief, lease *guard.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.world
	stale := !lease.Valid()
	best := r.highest[b.Key]
	if b.shared() { // which only a writer overtakes
		best = r.alone[b.Key]
	}
	switch {
	case best == nil || best.Fence < b.Fence:
	case best.Fence > b.Fence && w.mutate.unfence:
		w.violate("I2", "%s writes to %s with fence %d, and %s has written with %d", b.worker, b.Key, b.Fence, best.worker, best.Fence)
	case best.Fence > b.Fence:
		w.tally.refused.Add(1)
		w.trace.add("%s is refused: fence %d after %d on %s", b.worker, b.Fence, best.Fence, b.Key)
		if !stale && !w.forgottenSince(b.proven.get()) {
			w.violate("I2", "%s holds %s and is refused for its fence, and no server has lost anything", b.worker, b.Key)
		}
		return
	case best != b:
		w.violate("I2", "%s and %s write to %s under one fence", best.worker, b.worker, b.Key)
	}
	r.saw(b)
	w.tally.written.Add(1)
	if stale {
		w.tally.stale.Add(1)
	}
}

// saw notes the fence. r.mu must be held.
func (r *resource) saw(b *belief) {
	for _, highest := range []map[string]*belief{r.highest, r.alone} {
		if best := highest[b.Key]; best == nil || best.Fence < b.Fence {
			highest[b.Key] = b
		}
		if b.shared() {
			return
		}
	}
}
