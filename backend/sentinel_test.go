package backend_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// freeze replaces a master that is frozen, and thaws it.
func freeze(t *testing.T, s *redistest.Sentinel) {
	s.Master.Freeze()
	// the sentinels take the master for dead after half a second, and then vote
	time.Sleep(1800 * time.Millisecond)
	s.WaitFailover(t)
	s.Master.Thaw()
}

// isolate replaces a master that only clients can still reach.
func isolate(t *testing.T, s *redistest.Sentinel) {
	s.Path.Close()
	s.WaitFailover(t)
}

// A master that Sentinel has replaced may live on. It must not keep a lease alive: claims, renewals
// and releases follow the application's client.
func TestLong_aReplacedMasterKeepsNoLease(t *testing.T) {
	redistest.Long(t)
	for name, c := range map[string]struct {
		start   func(t testing.TB, args ...string) *redistest.Sentinel
		replace func(t *testing.T, s *redistest.Sentinel)
		backend string
	}{
		"frozen and thawed": {redistest.StartSlowSentinel, freeze, "single"},
		"isolated":          {redistest.StartSentinelWithPath, isolate, "reentrant"},
	} {
		locker := backends[c.backend]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sentinel := c.start(t)
			rdb := sentinel.Client(t)
			applicationOn(t, rdb)
			holder, next := guardFor(t, locker(rdb)), guardFor(t, locker(sentinel.Client(t)))
			lease, err := holder.Acquire(t.Context(), "k")
			require.NoError(t, err)
			ended := make(chan time.Time, 1)
			defer context.AfterFunc(lease.Context(), func() {
				ended <- time.Now()
				// A handler that heeds its context returns now. Until it does, its Guard
				// goes on renewing. The new master may then hold the key for longer than
				// the context lasts.
				_ = lease.Release(context.Background())
			})()
			claimOften(t, holder)       // so that the backend has its own connections, if any
			time.Sleep(sentinelTTL / 2) // the lease has been renewed once

			c.replace(t, sentinel)
			// a lease that is renewed on the old master ends on the new one within its TTL
			var second *guard.Lease
			for start := time.Now(); second == nil; {
				second, err = next.Acquire(t.Context(), "k", guard.WithWait(2*sentinelTTL))
				if err != nil && lease.Valid() {
					return // the new master has the lease, too
				}
				require.Less(t, time.Since(start), settled, "%v", err)
			}
			granted := time.Now()
			defer func() { _ = second.Release(context.Background()) }()
			select {
			case end := <-ended:
				require.Less(t, end.Sub(granted), sentinelTTL/2, "two holders")
			case <-time.After(sentinelTTL):
				require.Fail(t, "two holders")
			}
		})
	}
}

const sentinelTTL = 3 * time.Second

// guardFor returns a Guard with a short TTL, closed with the test.
func guardFor(t *testing.T, locker guard.Locker) *guard.Guard {
	t.Helper()
	g, err := guard.New(locker, guard.WithTTL(sentinelTTL))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = g.Close(ctx) // the master that has some of the leases may be gone
	})
	return g
}

// inBackground runs f again and again until the test ends.
func inBackground(t *testing.T, f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			f(ctx)
			time.Sleep(2 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// applicationOn has the application use its client, too.
func applicationOn(t *testing.T, rdb redis.UniversalClient) {
	inBackground(t, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = rdb.Incr(ctx, "counter").Err() // fails during the failover
	})
}

func claimOften(t *testing.T, g *guard.Guard) {
	runs := 0
	t.Cleanup(func() { assert.Positive(t, runs) })
	inBackground(t, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if g.Do(ctx, "other", func(context.Context) error { return nil }) == nil {
			runs++
		}
	})
}
