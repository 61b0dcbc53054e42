//go:build unix

package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A tracker follows the leases of a run: by when they end unless they are renewed, and under which
// IDs and fences the store knows them.
type tracker struct {
	mu     sync.Mutex
	asked  map[string]time.Time // when the last request for a key was sent
	until  map[string]time.Time // when its lease ends
	ids    map[string]string
	fences map[string]uint64
	extend func(left time.Duration) // notified of each change, or nil
}

func newTracker() *tracker {
	return &tracker{
		asked: map[string]time.Time{}, until: map[string]time.Time{},
		ids: map[string]string{}, fences: map[string]uint64{},
	}
}

// endOf returns when a lease ends whose request was sent at an instant: at the end of its TTL,
// less what the Guard takes off for clocks that drift.
func endOf(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - ttl/100 - 20*time.Millisecond)
}

// hook returns the hook that follows the leases.
func (t *tracker) hook() guard.Hook {
	return guard.Hook{
		Call: func(_ context.Context, e guard.CallEvent) {
			if e.Op == driver.OpAcquire {
				t.note(func() { t.asked[e.Key], t.ids[e.Key] = e.Start, e.Owner })
			}
		},
		AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
			if e.Err == nil {
				t.note(func() {
					t.until[e.Key], t.fences[e.Key] = endOf(t.asked[e.Key], e.TTL), e.Fence
				})
			}
		},
		Renew: func(_ context.Context, e guard.RenewEvent) {
			if e.Err == nil {
				t.note(func() { t.until[e.Key], t.fences[e.Key] = endOf(e.Start, e.TTL), e.Fence })
			}
		},
	}
}

func (t *tracker) note(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	if t.extend != nil {
		t.extend(t.left())
	}
}

// follow calls extend now and with each renewal, with the time until the first of the leases ends.
func (t *tracker) follow(extend func(left time.Duration)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extend = extend
	extend(t.left())
}

// left returns the time until the first of the leases ends. t.mu must be held.
func (t *tracker) left() time.Duration {
	first := slices.MinFunc(slices.Collect(maps.Values(t.until)), time.Time.Compare)
	return time.Until(first)
}

// Left returns the time until the first of the leases ends.
func (t *tracker) Left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left()
}

// id returns the ID by which the store knows the lease of the key.
func (t *tracker) id(key string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[key]
}

// fence returns the fence of the lease of the key.
func (t *tracker) fence(key string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fences[key]
}
