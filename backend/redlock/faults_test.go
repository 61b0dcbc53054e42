package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
)

const (
	// ttl is short, so that leases end within a test, and long beside what a loaded machine adds.
	ttl = time.Second
	// renewed is the TTL of a lease that has to stay renewed, also on a loaded machine.
	renewed = 2 * time.Second
	// healthy is what a call takes at most that waits for no broken node. One that waited for it
	// would take about the TTL.
	healthy = 500 * time.Millisecond
)

func TestLong_fault22_nodesDownFrozenOrSlow(t *testing.T) {
	redistest.Long(t)
	for name, c := range map[string]struct{ fault, mend func(q *quorum, i int) }{
		"down":   {func(q *quorum, i int) { q.servers[i].Kill() }, func(q *quorum, i int) { q.servers[i].Restart() }},
		"frozen": {func(q *quorum, i int) { q.servers[i].Freeze() }, func(q *quorum, i int) { q.servers[i].Thaw() }},
		"slow":   {func(q *quorum, i int) { q.proxies[i].Delay(5 * ttl) }, func(q *quorum, i int) { q.proxies[i].Restore() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := startQuorum(t, 5)
			for broken := range 6 {
				t.Run(fmt.Sprint(broken, " of 5"), func(t *testing.T) {
					g := newGuard(t, q.locker(t), guard.WithTTL(ttl))
					lease, err := g.Acquire(t.Context(), "held", guard.WithTTL(renewed))
					require.NoError(t, err)
					for i := range broken {
						c.fault(q, i)
					}
					if broken <= 2 {
						q.requireHealthy(t, g, lease)
					} else {
						q.requireRefused(t, g, broken)
						seen := faultmetrics.Watch(t, shows)
						require.Eventually(t, func() bool {
							return strings.Contains(strings.Join(seen.Lines(), "\n"), "onerun.node.operation.duration{error.type=")
						}, ttl+healthy, 10*time.Millisecond, "calls that go on after the refusal end before the nodes answer again")
					}
					for i := range broken {
						c.mend(q, i)
					}
					_ = lease.Release(t.Context())
					q.requireFree(t, "k", ttl+time.Second)
					q.requireFree(t, "held", renewed+time.Second)
					require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(5*time.Second)))
					q.requireFree(t, "k", time.Second) // before its clients are closed
				})
			}
		})
	}
}

// runs has the Guard run something. It tries again if the machine has held the process up for so
// long that the nodes had no time to answer.
func runs(t *testing.T, g *guard.Guard, key string) {
	t.Helper()
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	var err error
	for range 5 {
		start := time.Now()
		if err = g.Do(t.Context(), key, nothing); err == nil || stalls.Since(start) < ttl/4 {
			break
		}
	}
	require.NoError(t, err)
}

func (q *quorum) requireHealthy(t *testing.T, g *guard.Guard, lease *guard.Lease) {
	for range 5 {
		redistest.Within(t, healthy, "a run", func() { runs(t, g, "k") })
	}
	first := newGuard(t, q.locker(t), guard.WithTTL(ttl))
	redistest.Within(t, healthy, "the first run", func() { runs(t, first, "first") })
	require.ErrorIs(t, first.Do(t.Context(), "held", nothing), guard.ErrBusy)
	require.Never(t, func() bool { return !lease.Valid() }, renewed+ttl, 10*time.Millisecond, "it is renewed")
	require.NoError(t, context.Cause(lease.Context()))
	redistest.Within(t, healthy, "a release", func() { require.NoError(t, lease.Release(t.Context())) })
	redistest.Within(t, healthy, "a run after it", func() { require.NoError(t, first.Do(t.Context(), "held", nothing)) })
	time.Sleep(healthy) // for the last releases, before the clients are closed
}

func (q *quorum) requireRefused(t *testing.T, g *guard.Guard, broken int) {
	const tries = 5 // a machine that stands still has no answers of healthy nodes, either
	for try := 1; ; try++ {
		var err error
		redistest.Within(t, ttl+healthy, "the refusal", func() { err = g.Do(t.Context(), "k", nothing) })
		requireNoQuorum(t, err, driver.OpAcquire)
		for _, p := range q.proxies[:broken] {
			require.ErrorContains(t, err, p.Addr())
		}
		namesMore := slices.ContainsFunc(q.proxies[broken:], func(p *redistest.Proxy) bool {
			return strings.Contains(err.Error(), p.Addr())
		})
		if !namesMore {
			return
		}
		require.Less(t, try, tries, "it names nodes that have not failed: %v", err)
	}
}

func TestFault23_aMajorityRestartsEmptyWhileHeld(t *testing.T) {
	t.Parallel()
	const ttl = 10 * ttl // a busy machine takes seconds to restart three servers
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
