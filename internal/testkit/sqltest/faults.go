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

// A renewal does not wait behind callers that want a slow store, and leave.
func claimsStarveNoRenewals(t *testing.T, s *Store, connections int) {
	const held, renewals = 20, 3
	var slow line
	db := s.dialed(t, slow.dial)
	db.SetMaxOpenConns(connections)
	l := s.New(db)
	require.NoError(t, l.Migrate(t.Context()))
	var claims []driver.Claim
	for i := range held {
		claims = append(claims, MustAcquire(t, l, Claim(fmt.Sprint("held", i), Long)).Claim)
	}
	slow.delay.Store(int64(400 * time.Millisecond))
	slow.dials.Store(0)
	var callers sync.WaitGroup
	calling, stop := context.WithCancel(t.Context())
	callers.Go(func() {
		for i := 0; calling.Err() == nil; i++ {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				_, _ = l.TryAcquire(ctx, Claim(fmt.Sprint("call", i), Long))
			})
			time.Sleep(5 * time.Millisecond)
		}
	})
	time.Sleep(time.Second) // many callers wait
	for range renewals {
		before := slow.replied.Load()
		driver.Await(Within(t, time.Minute), l, driver.OpRenew, claims, driver.After{}, func(_ int, a driver.Answer, err error) {
			require.NoError(t, err)
			require.True(t, a.Held)
		})
		// Among callers, it would wait for some 100.
		require.Less(t, slow.replied.Load()-before, int64(50), "replies before that of a renewal")
	}
	stop()
	callers.Wait()
	require.Less(t, slow.dials.Load(), int64(3*connections), "statements whose callers have left keep their connection")
}
