package guardtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func brokenFences() []broken {
	return []broken{
		{"fences repeat", answering(func(_ driver.Claim, g *driver.Answer) {
			if g.State == driver.Granted {
				g.Fence = 1
			}
		}), []string{
			"fences grow after a release", "fences grow after an expiry", "fences grow after a minimum hold",
			"fences grow after a done marker", "random workers never hold a key at the same time",
		}},
		{"a claim has the same fence forever", wrapped(fenceOfID), []string{"a claim that is repeated after its expiry gets a new fence"}},
		{"reserved fences are granted", wrapped(reservesNothing), []string{"reserved fences are granted to no other holder"}},
		{"one fence too many is reserved", answering(func(c driver.Claim, g *driver.Answer) {
			if g.Reserved > 0 {
				g.Reserved = c.Fences.Reserve + 1
			}
		}), []string{"a claim reserves no more fences than it asks for"}},
		{"a claim that requests no fences reserves one", wrapped(mapping(func(c *driver.Claim) { c.Fences.Reserve = max(c.Fences.Reserve, 1) })), []string{
			"a claim reserves no more fences than it asks for",
		}},
		{"a repeated claim reserves fences", answering(func(c driver.Claim, g *driver.Answer) {
			if g.Held {
				g.Reserved = c.Fences.Reserve
			}
		}), []string{"a repeated claim reserves no fences"}},
		{"a renewal does not raise the fence", wrapped(mapping(func(c *driver.Claim) { c.Fence = 0 })), []string{
			"a renewal raises the fence", "a batch of renewals reports on each claim",
		}},
		{"a renewal raises the holder's fence, but not the key's", wrapped(raisesHolders), []string{"a renewal raises the fence"}},
		{"a renewal that raises the fence reserves nothing", wrapped(mapping(func(c *driver.Claim) { c.Fences.Reserve = 0 })), []string{"a renewal raises the fence"}},
		{"a renewal lowers the fence", wrapped(setsFence), []string{"a renewal does not lower the fence"}},
		{"fences restart after a flush", flushedFences(0), []string{"fences grow across a flush"}},
		{"fences grow across a flush only once a second", flushedFences(time.Second), []string{"fences grow across a flush"}},
		{"fences start at the clock after a flush", reservedFences(bounded, false), []string{"reserved fences are below those after a flush"}},
		{"reservations have no bound", reservedFences(func(_, _, reserve uint64) uint64 { return reserve }, true), []string{"reserved fences are below those after a flush"}},
	}
}

// reservesNothing is a Locker that reports reserved fences without reserving them.
func reservesNothing(l guard.Locker) guard.Locker {
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		reserve := c.Fences.Reserve
		c.Fences.Reserve = 0
		g, err := l.TryAcquire(ctx, c)
		if g.State == driver.Granted && !g.Held {
			g.Reserved = max(reserve, 0)
		}
		return g, err
	}}
}

func fenceOfID(l guard.Locker) guard.Locker {
	var fences memo[uint64]
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		g, err := l.TryAcquire(ctx, c)
		if g.State == driver.Granted {
			if fence := fences.get(c.ID); fence != 0 {
				g.Fence = fence
			}
			fences.set(c.ID, g.Fence)
		}
		return g, err
	}}
}

// renewedFence answers a repeated claim with the fence that keep chose at the last renewal.
func renewedFence(l guard.Locker, keep func(before, c uint64) uint64) guard.Locker {
	var fences memo[uint64]
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			if fence := fences.get(c.ID); g.State == driver.Granted && fence != 0 {
				g.Fence = fence
			}
			return g, err
		},
		renew: func(ctx context.Context, c driver.Claim) (bool, error) {
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

// flushedFences has a fence counter that a flush sets to 0. A clock with that grain advances the
// counter.
func flushedFences(grain time.Duration) guardtest.Backend {
	return countedFences(func(counter *uint64, _ driver.Claim, g *driver.Answer) {
		var clock uint64
		if grain > 0 {
			clock = uint64(time.Now().UnixNano()/int64(grain)) << 20
		}
		*counter = max(*counter+1, clock)
		g.Fence = *counter
	})
}

// halfAhead is how far ahead of its clock a store may reserve fences. A store whose fences jump
// after a flush grants a fence that is twice as far ahead.
const halfAhead = 1 << 16

// reservedFences has a fence counter that a flush sets to 0, and a clock in microseconds.
// reservable returns how many fences it reserves.
func reservedFences(reservable func(fence, clock, reserve uint64) uint64, jumps bool) guardtest.Backend {
	return countedFences(func(counter *uint64, c driver.Claim, g *driver.Answer) {
		clock := uint64(time.Now().UnixMicro())
		g.Fence = max(*counter+1, clock)
		if *counter == 0 && jumps {
			g.Fence = clock + 2*halfAhead
		}
		reserved := reservable(g.Fence, clock, uint64(max(c.Fences.Reserve, 0)))
		g.Reserved = int(reserved)
		*counter = g.Fence + reserved
	})
}

func bounded(fence, clock, reserve uint64) uint64 {
	if fence >= clock+halfAhead {
		return 0
	}
	return min((clock+halfAhead-fence)/16, reserve)
}

// countedFences has a fence counter that a flush sets to 0. next makes the fences of new holders
// from it.
func countedFences(next func(counter *uint64, c driver.Claim, g *driver.Answer)) guardtest.Backend {
	var mu sync.Mutex
	var counter uint64
	reset := func() {
		mu.Lock()
		defer mu.Unlock()
		counter = 0
	}
	s := serverBackend(&server{restartsFast: true}, func(l guard.Locker) guard.Locker {
		reset()
		fences := map[string]uint64{}
		return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			if g.State != driver.Granted {
				return g, err
			}
			mu.Lock()
			defer mu.Unlock()
			g.Reserved = 0
			if fences[c.ID] == 0 {
				next(&counter, c, &g)
				fences[c.ID] = g.Fence
			}
			g.Fence = fences[c.ID]
			return g, nil
		}}
	})
	flush := s.Flush
	s.Flush = func(t testing.TB) {
		flush(t)
		reset()
	}
	return s
}

func TestRun_passesABackendWhoseFencesJumpAfterAFlush(t *testing.T) {
	s := reservedFences(bounded, true)
	for _, name := range []string{
		"fences grow across a flush", "reserved fences are below those after a flush",
		"reserved fences are granted to no other holder", "a claim reserves no more fences than it asks for",
	} {
		require.False(t, runCheck(t, s, name).Failed(), name)
	}
}
