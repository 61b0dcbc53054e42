package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// Faults breaks the server of a Store, and the connections to it. start returns a Store with a
// server of its own, which must have Server.
func Faults(t *testing.T, start func(t testing.TB) *Store) {
	for name, fault := range map[string]func(t *testing.T, s *Store){
		"the server is killed and restarted": killed,
		"the server is frozen":               frozen,
		"connections are cut":                connectionsAreCut,
		"claims do not starve renewals":      func(t *testing.T, s *Store) { claimsStarveNoRenewals(t, s, 2) },
		"claims do not starve renewals of a larger pool": func(t *testing.T, s *Store) {
			claimsStarveNoRenewals(t, s, 4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault(t, start(t))
		})
	}
}

func killed(t *testing.T, s *Store) {
	l, _ := s.Migrated(t)
	other, _ := s.Migrated(t)
	first := MustAcquire(t, l, Claim("freed", Long))
	MustRelease(t, l, first.Claim)
	g, err := guard.New(l, guard.WithTTL(Long))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(context.Background())) }()
	require.NoError(t, g.Do(t.Context(), "held", func(ctx context.Context) error {
		s.Server.Kill(t)
		_, err := other.TryAcquire(Within(t, 5*time.Second), Claim("held", Long))
		RequireKind(t, driver.KindConnection, err)
		s.Server.Restart(t)
		require.Eventually(t, func() bool {
			got, err := other.TryAcquire(Within(t, time.Second), Claim("held", Long))
			return err == nil && got.State == driver.Busy
		}, 20*time.Second, 20*time.Millisecond, "what was committed is kept")
		return ctx.Err()
	}))
	require.Greater(t, AwaitGrant(t, other, Claim("freed", Long)).Fence, first.Fence)
	MustAcquire(t, other, Claim("held", Long))
}

func frozen(t *testing.T, s *Store) {
	l, _ := s.Migrated(t)
	other, _ := s.Migrated(t)
	g, err := guard.New(l, guard.WithTTL(time.Second))
	require.NoError(t, err)
	var fence uint64
	err = g.Do(t.Context(), "key", func(ctx context.Context) error {
		fence = guard.Fence(ctx)
		s.Server.Freeze(t)
		<-ctx.Done() // although the server does not answer
		require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
		s.Server.Thaw()
		return nil
	})
	require.ErrorIs(t, err, guard.ErrLost)
	next := AwaitGrant(t, other, Claim("key", Long))
	require.Greater(t, next.Fence, fence)
	require.NoError(t, g.Close(context.Background()))
	require.NoError(t, other.InTx(t.Context(), next, func(*sql.Tx) error { return nil }))
}

// The outcome of a statement whose connection is cut is unknown.
func connectionsAreCut(t *testing.T, s *Store) {
	lines := make([]line, 2)
	here, there := s.dialed(t, lines[0].dial), s.dialed(t, lines[1].dial)
	suite := s.Suite(t, here, there)
	admin := s.Client(t)
	suite.New = func(t testing.TB) guard.Locker {
		Exec(t, admin, s.Empty)
		return s.New(here)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var cutting sync.WaitGroup
	for i := range lines {
		cutting.Go(func() { lines[i].keepCutting(ctx) })
	}
	guardtest.RunExclusion(t, suite)
	cancel()
	cutting.Wait()
	require.Positive(t, lines[0].cuts+lines[1].cuts, "no connection was cut")
}

// Callers that want a slow store, and leave, cost no held lease.
func claimsStarveNoRenewals(t *testing.T, s *Store, connections int) {
	const ttl, held = 4 * time.Second, 20
	var slow line
	db := s.dialed(t, slow.dial)
	db.SetMaxOpenConns(connections)
	l := s.New(db)
	require.NoError(t, l.Migrate(t.Context()))
	g, err := guard.New(l, guard.WithTTL(ttl))
	require.NoError(t, err)
	var leases []*guard.Lease
	for i := range held {
		lease, err := g.Acquire(t.Context(), fmt.Sprint("held", i))
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	slow.delay.Store(int64(400 * time.Millisecond))
	slow.dials.Store(0)
	var callers sync.WaitGroup
	for i := range 200 * 3 * int(ttl/time.Second) / 2 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_ = g.Do(ctx, fmt.Sprint("call", i), func(context.Context) error { return nil })
		})
		time.Sleep(5 * time.Millisecond)
	}
	callers.Wait()
	for _, lease := range leases {
		require.NoError(t, context.Cause(lease.Context()))
	}
	require.Less(t, slow.dials.Load(), int64(3*connections), "statements whose callers have left keep their connection")
	slow.delay.Store(0)
	for _, lease := range leases {
		require.NoError(t, lease.Release(t.Context()))
	}
	require.NoError(t, g.Close(t.Context()))
}
