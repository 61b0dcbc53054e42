package redisstore

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Revisits are the claims that want their keys alone, and that were refused because others share
// these. The store may keep other claims away for them, or have them in a queue. Only the program
// of shared claims can end that. The zero value has no claims. It is safe for concurrent use.
type Revisits struct {
	n     atomic.Int64 // of claims
	mu    sync.Mutex
	until map[string]time.Time // by ID: the store has forgotten the claim then
	prune int                  // with how many claims to look for old ones
}

// Add adds a claim with that ID and TTL.
func (r *Revisits) Add(id string, ttl time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = map[string]time.Time{}
	}
	r.until[id] = now.Add(ttl)
	if len(r.until) > max(r.prune, 100) {
		maps.DeleteFunc(r.until, func(_ string, until time.Time) bool { return now.After(until) })
		r.prune = 2 * len(r.until)
	}
	r.n.Store(int64(len(r.until)))
}

// Has reports whether the claim with that ID is among them.
func (r *Revisits) Has(id string) bool {
	if r.n.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.until[id]
	return ok
}

func (r *Revisits) remove(id string) {
	if r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, id)
	r.n.Store(int64(len(r.until)))
}

// Acquired forgets a claim that has an answer, unless the store still knows it.
func (r *Revisits) Acquired(c driver.Claim, grant driver.Grant, err error) {
	queued := grant.State == driver.Busy && c.Queue == driver.Queued
	if err == nil && !grant.Wanted && !queued {
		r.remove(c.ID)
	}
}

// Released forgets a claim that was released.
func (r *Revisits) Released(c driver.Claim, err error) {
	if err == nil {
		r.remove(c.ID)
	}
}
