package redlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
)

// ttl is that of leases that are not to end while a test runs. A half of it is left if the machine
// pauses after a third.
const ttl = 30 * time.Second

// How a quorum counts what it has, and for whom it waits, is in virtual time in votes_test.go. This
// has servers: two of five that fail cost nothing, the third costs everything, and nothing is left.
func TestLong_fault22_nodesDownFrozenOrSlow(t *testing.T) {
	redistest.Long(t)
	const ttl = 12 * time.Second
	wait := guard.WithWait(time.Minute)
	for name, c := range map[string]struct{ fault, mend func(q *quorum, i int) }{
		"down":   {func(q *quorum, i int) { q.servers[i].Kill() }, func(q *quorum, i int) { q.servers[i].Restart() }},
		"frozen": {func(q *quorum, i int) { q.servers[i].Freeze() }, func(q *quorum, i int) { q.servers[i].Thaw() }},
		"slow":   {func(q *quorum, i int) { q.proxies[i].Delay(10 * time.Second) }, func(q *quorum, i int) { q.proxies[i].Restore() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := startQuorum(t, 5)
			renewed := make(chan struct{}, 100)
			g := newGuard(t, q.locker(t), guard.WithTTL(ttl), guard.WithHook(guard.Hook{Renew: func(_ context.Context, e guard.RenewEvent) {
				if e.Err == nil {
					renewed <- struct{}{}
				}
			}}))
			lease, err := g.Acquire(t.Context(), "held")
			require.NoError(t, err)
			c.fault(q, 0)
			c.fault(q, 1)
			first := newGuard(t, q.locker(t), guard.WithTTL(ttl)) // it connects only now
			require.NoError(t, first.Do(t.Context(), "first", nothing, wait))
			require.ErrorIs(t, first.Do(t.Context(), "held", nothing), guard.ErrBusy)
			require.NoError(t, g.Do(t.Context(), "k", nothing, wait))
			select {
			case <-renewed:
			case <-lease.Context().Done():
				require.NoError(t, context.Cause(lease.Context()))
			}

			c.fault(q, 2)
			err = g.Do(t.Context(), "k", nothing, guard.WithTTL(2*time.Second))
			requireNoQuorum(t, err, driver.OpAcquire)
			for _, p := range q.proxies[:3] {
				require.ErrorContains(t, err, p.Addr())
			}
			seen := faultmetrics.Watch(t, shows)
			require.Eventually(t, func() bool {
				return strings.Contains(strings.Join(seen.Lines(), "\n"), "onerun.node.operation.duration{error.type=")
			}, time.Minute, 10*time.Millisecond, "calls that go on after the refusal end before the nodes answer again")
			for i := range 3 {
				c.mend(q, i)
			}
			_ = lease.Release(t.Context()) // it may have ended meanwhile
			require.NoError(t, first.Do(t.Context(), "held", nothing, wait))
			require.NoError(t, first.Do(t.Context(), "k", nothing, wait))
			for _, key := range []string{"k", "first", "held"} {
				q.requireFree(t, key, time.Minute)
			}
		})
	}
}

func TestFault23_aMajorityRestartsEmptyWhileHeld(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second // a busy machine takes seconds to restart three servers
	q := startQuorum(t, 5)
	g := newGuard(t, q.locker(t), guard.WithTTL(ttl))
	lease, err := g.Acquire(t.Context(), "k")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return q.held(t, lease) == 5 }, time.Minute, 10*time.Millisecond)
	for _, s := range q.servers[:3] { // a renewal between two restarts would bring the lease back
		s.Kill()
	}
	for _, s := range q.servers[:3] {
		s.Restart()
	}
	select {
	case <-lease.Context().Done():
	case <-time.After(time.Minute):
		require.Fail(t, "the lease is still believed in")
	}
	var lost *guard.LostError
	require.ErrorAs(t, context.Cause(lease.Context()), &lost)
	require.Equal(t, guard.LossNotHeld, lost.Reason)
	require.Equal(t, []int{3, 4}, q.present(t, "k"), "the claim was not acquired again")
	next, err := newGuard(t, q.locker(t)).Acquire(t.Context(), "k", guard.WithWait(time.Minute))
	require.NoError(t, err)
	require.Greater(t, next.Fence(), lease.Fence())
	require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	require.True(t, next.Valid())
	require.GreaterOrEqual(t, q.held(t, next), 3)
	require.NoError(t, next.Release(t.Context()))
}
