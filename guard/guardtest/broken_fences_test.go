package guardtest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func brokenFences() []broken {
	return []broken{
		{
			name: "fences repeat",
			store: answering(func(_ guard.Claim, g *guard.Grant) {
				if g.State == guard.Granted {
					g.Fence = 1
				}
			}),
			caughtBy: []string{
				"fences grow after a release",
				"fences grow after an expiry",
				"fences grow after a minimum hold",
				"fences grow after a done marker",
				"random workers never hold a key together",
			},
		},
		{
			name:     "a claim has one fence for ever",
			store:    wrapped(fenceOfID),
			caughtBy: []string{"a claim that comes back late has a new fence"},
		},
		{
			name:     "fences that were set aside are granted",
			store:    wrapped(func(l guard.Locker) guard.Locker { return mapped(l, func(c *guard.Claim) { c.Reserve = 0 }) }),
			caughtBy: []string{"fences that were set aside are not granted"},
		},
		{
			name:     "a renewal does not raise the fence",
			store:    wrapped(func(l guard.Locker) guard.Locker { return mapped(l, func(c *guard.Claim) { c.Fence = 0 }) }),
			caughtBy: []string{"a renewal raises the fence", "a batch of renewals is answered one by one"},
		},
		{
			name:     "a renewal raises the holder's fence and not the key's",
			store:    wrapped(raisesHolders),
			caughtBy: []string{"a renewal raises the fence"},
		},
		{
			name:     "a renewal sets the fence",
			store:    wrapped(setsFence),
			caughtBy: []string{"a renewal does not lower the fence"},
		},
		{name: "fences start anew after a flush", store: flushedFences(0), caughtBy: []string{"fences grow across a flush"}},
		{
			name:     "fences grow across a flush by the second",
			store:    flushedFences(time.Second),
			caughtBy: []string{"fences grow across a flush"},
		},
	}
}

func fenceOfID(l guard.Locker) guard.Locker {
	var fences memo[uint64]
	return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
		g, err := l.TryAcquire(ctx, c)
		if g.State == guard.Granted {
			if fence := fences.get(c.ID); fence != 0 {
				g.Fence = fence
			}
			fences.set(c.ID, g.Fence)
		}
		return g, err
	}}
}

// renewedFence answers a repeated claim with the fence that keep kept of the last renewal.
func renewedFence(l guard.Locker, keep func(before, c uint64) uint64) guard.Locker {
	var fences memo[uint64]
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
			g, err := l.TryAcquire(ctx, c)
			if fence := fences.get(c.ID); g.State == guard.Granted && fence != 0 {
				g.Fence = fence
			}
			return g, err
		},
		renew: func(ctx context.Context, c guard.Claim) (bool, error) {
			fence := c.Fence
			c.Fence = 0
			held, err := l.Renew(ctx, c)
			if held {
				fences.set(c.ID, keep(fences.get(c.ID), fence))
			}
			return held, err
		},
	}
}

func raisesHolders(l guard.Locker) guard.Locker {
	return renewedFence(l, func(before, c uint64) uint64 { return max(before, c) })
}

func setsFence(l guard.Locker) guard.Locker {
	return renewedFence(l, func(_, c uint64) uint64 { return c })
}

// flushedFences has a fence counter that a flush sets to 0, and a clock of that grain that moves it on.
func flushedFences(grain time.Duration) guardtest.Store {
	var counter atomic.Uint64
	s := wrapped(func(l guard.Locker) guard.Locker {
		counter.Store(0)
		var fences memo[uint64]
		return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
			g, err := l.TryAcquire(ctx, c)
			if g.State != guard.Granted {
				return g, err
			}
			if fences.get(c.ID) == 0 {
				var clock uint64
				if grain > 0 {
					clock = uint64(time.Now().UnixNano()/int64(grain)) << 20
				}
				counter.Store(max(counter.Load()+1, clock))
				fences.set(c.ID, counter.Load())
			}
			g.Fence = fences.get(c.ID)
			return g, nil
		}}
	})
	flush := s.Flush
	s.Flush = func(t testing.TB) {
		flush(t)
		counter.Store(0)
	}
	return s
}
