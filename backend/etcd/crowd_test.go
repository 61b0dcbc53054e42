package etcd_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A crowd holds keys with a Guard during a fault, while claimants try to get them.
type crowd struct {
	t      *testing.T
	guard  *guard.Guard
	leases map[string]*guard.Lease // by keys

	mu      sync.Mutex
	claims  []driver.Claim           // of claimants, until they are granted
	granted map[string]driver.Answer // to claimants, by keys
	overlap int                      // grants of keys whose holders still worked
}

// hold acquires n keys.
func hold(t *testing.T, l *etcd.Locker, name string, n int, ttl time.Duration) *crowd {
	t.Helper()
	g, err := guard.New(l, guard.WithTTL(ttl))
	require.NoError(t, err)
	c := &crowd{t: t, guard: g, leases: map[string]*guard.Lease{}, granted: map[string]driver.Answer{}}
	errs, leases := make([]error, n), make([]*guard.Lease, n)
	var all sync.WaitGroup
	for i := range n {
		key := fmt.Sprint(name, i)
		c.claims = append(c.claims, claim(key))
		all.Go(func() { leases[i], errs[i] = g.Acquire(t.Context(), key) })
	}
	all.Wait()
	for i, claim := range c.claims {
		require.NoError(t, errs[i])
		c.leases[claim.Key] = leases[i]
	}
	return c
}

// claim lets claimants try to get keys, until stop.
func (c *crowd) claim(l *etcd.Locker) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var claimants sync.WaitGroup
	for range 2 {
		claimants.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
				if request, any := c.next(); any {
					c.try(ctx, l, request)
				}
			}
		})
	}
	return func() {
		cancel()
		claimants.Wait()
	}
}

// next returns one of the claims that were not granted yet.
func (c *crowd) next() (request driver.Claim, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.claims) == 0 {
		return request, false
	}
	return c.claims[rand.IntN(len(c.claims))], true
}

func (c *crowd) try(ctx context.Context, l *etcd.Locker, request driver.Claim) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := l.TryAcquire(ctx, request)
	if err != nil || answer.State != driver.Granted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted[request.Key] = answer
	c.claims = slices.DeleteFunc(c.claims, func(other driver.Claim) bool { return other.Key == request.Key })
	if c.leases[request.Key].Valid() { // the context of a process that was paused may end later
		c.overlap++
	}
}

// lost returns the number of leases that were lost, all of which their holders have noticed.
func (c *crowd) lost() (n int) {
	for _, lease := range c.leases {
		if cause := context.Cause(lease.Context()); cause != nil {
			require.ErrorIs(c.t, cause, guard.ErrLost)
			n++
		}
	}
	return n
}

// takeover returns the number of keys that claimants have. Their fences are larger.
func (c *crowd) takeover() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, answer := range c.granted {
		require.Greater(c.t, answer.Fence, c.leases[key].Fence())
	}
	return len(c.granted)
}

// release releases all leases, in the background: a Guard renews what its work has not released.
func (c *crowd) release() {
	for _, lease := range c.leases {
		go func() { _ = lease.Release(c.t.Context()) }()
	}
}

// end requires that no two processes have held a key at once, and waits until all is released.
func (c *crowd) end() {
	c.release()
	require.NoError(c.t, c.guard.Close(c.t.Context()))
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Zero(c.t, c.overlap, "two holders of a key at once")
}
