package guardtest

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Benchmark measures a backend's Locker in four sub-benchmarks. They acquire and release an
// uncontended key, renew a lease, acquire and release different keys in parallel, and try to
// acquire a busy key. It runs in real time and ignores Backend.Bubble.
func Benchmark(b *testing.B, backend Backend) {
	b.Run("pair", func(b *testing.B) { benchPair(b, backend.New(b)) })
	b.Run("renew", func(b *testing.B) { benchRenew(b, backend.New(b)) })
	b.Run("parallel", func(b *testing.B) { benchParallel(b, backend.New(b)) })
	b.Run("busy", func(b *testing.B) { benchBusy(b, backend.New(b)) })
}

func benchClaim(key string) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: long, Label: "benchmark"}
}

// pair acquires and releases a key, and reports whether both calls succeeded.
func pair(ctx context.Context, l guard.Locker, c driver.Claim) (bool, error) {
	g, err := l.TryAcquire(ctx, c)
	if err != nil || g.State != driver.Granted {
		return false, err
	}
	return l.Release(ctx, c, driver.After{})
}

func benchPair(b *testing.B, l guard.Locker) {
	ctx, c := b.Context(), benchClaim("key")
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := pair(ctx, l, c); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func benchRenew(b *testing.B, l guard.Locker) {
	ctx, c := b.Context(), benchClaim("key")
	g, err := l.TryAcquire(ctx, c)
	require.NoError(b, err)
	c.Fence = g.Fence
	b.ReportAllocs()
	for b.Loop() {
		if held, err := l.Renew(ctx, c); !held || err != nil {
			b.Fatal(held, err)
		}
	}
}

func benchParallel(b *testing.B, l guard.Locker) {
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := benchClaim(rand.Text())
		for pb.Next() {
			if ok, err := pair(ctx, l, c); !ok || err != nil {
				b.Error(ok, err)
				return
			}
		}
	})
}

func benchBusy(b *testing.B, l guard.Locker) {
	ctx, c := b.Context(), benchClaim("key")
	_, err := l.TryAcquire(ctx, benchClaim("key"))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if g, err := l.TryAcquire(ctx, c); err != nil || g.State != driver.Busy {
			b.Fatal(g, err)
		}
	}
}
