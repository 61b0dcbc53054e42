package reentrant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	// ttl is for leases whose end, or renewal, a test waits for.
	ttl = time.Second
	// long is a TTL that does not pass while a test runs. Nor does half of it, after which a
	// waiter that was not notified asks again.
	long = 2 * time.Minute

	// renewed is the TTL of a lease that is to be renewed. There are seconds to try again.
	renewed = 6 * time.Second
	// near is for times that are left, which differ by far more.
	near = float64(4 * time.Second)
	// prompt is less than half of each TTL of a waiter, after which it asks by itself, and more
	// than a machine pauses.
	prompt = longest / 4
	// soon is how long a busy machine may take for what is over in a moment on another.
	soon = time.Minute
	step = 5 * time.Millisecond
)

// guardOver returns a Guard over the store, closed with the test.
func guardOver(t testing.TB, locker guard.Locker, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(locker, append([]guard.Option{guard.WithTTL(long)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return g
}

func newGuard(t testing.TB, rdb redis.UniversalClient, opts ...guard.Option) *guard.Guard {
	t.Helper()
	return guardOver(t, reentrant.New(rdb), opts...)
}

// acquire takes the key, and gives it back with the test if the test does not.
func acquire(t testing.TB, g *guard.Guard, key string, opts ...guard.Option) *guard.Lease {
	t.Helper()
	lease, err := g.Acquire(t.Context(), key, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

func nothing(context.Context) error { return nil }

// waits starts to wait for the key, and then does nothing. What Do returned, and when, comes on
// the channel.
func waits(t testing.TB, g *guard.Guard, key string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		err := g.Do(t.Context(), key, nothing, guard.WithWait(guard.Forever))
		done <- outcome{err, time.Now()}
	}()
	return done
}

type outcome struct {
	err error
	at  time.Time
}

// requireIn waits until the waiter has had the key, and returns when that was. It fails if the
// waiter was not notified.
func requireIn(t testing.TB, done <-chan outcome) time.Time {
	t.Helper()
	select {
	case got := <-done:
		require.NoError(t, got.err)
		return got.at
	case <-time.After(prompt):
		require.FailNow(t, "the waiter sleeps on")
		return time.Time{}
	}
}

// requireBusy asserts that the key is busy, and returns the details.
func requireBusy(t testing.TB, g *guard.Guard, key string) *guard.BusyError {
	t.Helper()
	var busy *guard.BusyError
	require.ErrorAs(t, g.Do(t.Context(), key, nothing), &busy)
	return busy
}

// requireNotHeld waits until the lease is found to be lost.
func requireNotHeld(t testing.TB, lease *guard.Lease) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(soon):
		require.FailNow(t, "the context has not ended")
	}
	var lost *guard.LostError
	require.ErrorAs(t, context.Cause(lease.Context()), &lost)
	require.Equal(t, guard.LossNotHeld, lost.Reason)
}

// A claimant makes the calls of a Guard one by one.
type claimant struct {
	t      testing.TB
	locker guard.Locker
	claim  driver.Claim
}

// claims returns a claimant of the key whose claim has that ID.
func claims(t testing.TB, locker guard.Locker, key, owner, id string, ttl time.Duration) *claimant {
	return &claimant{t, locker, driver.Claim{Key: key, ID: id, Owner: owner, TTL: ttl, Label: "label of " + id}}
}

func (c *claimant) ask() driver.Answer {
	c.t.Helper()
	grant, err := c.locker.TryAcquire(c.t.Context(), c.claim)
	require.NoError(c.t, err)
	c.claim.Repeated = grant.State == driver.Busy && (grant.Reason == driver.HeldForClaim || c.claim.Queue == driver.Queued)
	return grant
}

func (c *claimant) take() driver.Answer {
	c.t.Helper()
	grant := c.ask()
	require.Equal(c.t, driver.Granted, grant.State, "%+v", grant)
	c.claim.Fence = grant.Fence
	return grant
}

func (c *claimant) renew() bool {
	c.t.Helper()
	held, err := c.locker.Renew(c.t.Context(), c.claim)
	require.NoError(c.t, err)
	return held
}

func (c *claimant) release(after driver.After) bool {
	c.t.Helper()
	held, err := c.locker.Release(c.t.Context(), c.claim, after)
	require.NoError(c.t, err)
	return held
}

// timeLeft returns the TTL of a Redis key, which must have one.
func timeLeft(t testing.TB, rdb redis.UniversalClient, key string) time.Duration {
	t.Helper()
	left, err := rdb.PTTL(t.Context(), key).Result()
	require.NoError(t, err)
	require.Positive(t, left, "the key has a TTL")
	return left
}

func requireGone(t testing.TB, rdb redis.UniversalClient, key string) {
	t.Helper()
	n, err := rdb.Exists(t.Context(), key).Result()
	require.NoError(t, err)
	require.Zero(t, n, "%q is left", key)
}

// pubsubClients returns how many connections of the servers listen to channels.
func pubsubClients(t testing.TB, servers ...*redistest.Server) (n int) {
	t.Helper()
	for _, s := range servers {
		rdb := s.Client(t)
		list, err := rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		require.NoError(t, err)
		require.NoError(t, rdb.Close())
		n += strings.Count(list, "\n")
	}
	return n
}

// scripts returns how many scripts the servers have run by their hash.
func scripts(t testing.TB, servers ...*redistest.Server) (n int64) {
	t.Helper()
	for _, s := range servers {
		n += s.Calls(t)["evalsha"]
	}
	return n
}

// settled waits until the servers run no more scripts, and returns how many they have run: those
// who wait by looking again and again would run some.
func settled(t testing.TB, servers ...*redistest.Server) int64 {
	t.Helper()
	const quiet = 400 * time.Millisecond // longer than the longest pause of one who looks
	n, since := scripts(t, servers...), time.Now()
	require.Eventually(t, func() bool {
		if now := scripts(t, servers...); now != n {
			n, since = now, time.Now()
		}
		return time.Since(since) > quiet
	}, soon, 20*time.Millisecond, "somebody asks again and again")
	return n
}
