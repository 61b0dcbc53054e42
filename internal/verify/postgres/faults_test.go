package postgres_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// within returns a context that ends after a time.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// requireKind asserts that the store could not be asked, and why.
func requireKind(t testing.TB, want driver.StoreErrorKind, err error) {
	t.Helper()
	var store *driver.StoreError
	require.ErrorAs(t, err, &store)
	require.Equal(t, want, store.Kind, err.Error())
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

func TestLong_serverIsKilledAndRestarted(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := postgrestest.Start(t)
	l, _ := migrated(t, server.DSN())
	other, _ := migrated(t, server.DSN())
	first := mustAcquire(t, l, claim("freed", 10*time.Millisecond))
	g, err := guard.New(l, guard.WithTTL(15*time.Second))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(context.Background())) }()
	require.NoError(t, g.Do(t.Context(), "held", func(ctx context.Context) error {
		server.Kill(t)
		_, err := other.TryAcquire(within(t, 5*time.Second), claim("held", long))
		requireKind(t, driver.KindConnection, err)
		server.Restart(t)
		require.Eventually(t, func() bool {
			got, err := other.TryAcquire(within(t, time.Second), claim("held", long))
			return err == nil && got.State == driver.Busy
		}, 10*time.Second, 20*time.Millisecond, "what was committed is kept")
		return ctx.Err()
	}))
	require.Greater(t, awaitGrant(t, other, claim("freed", long)).Fence, first.Fence)
	mustAcquire(t, other, claim("held", long))
}

func TestLong_serverIsFrozen(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := postgrestest.Start(t)
	l, _ := migrated(t, server.DSN())
	other, _ := migrated(t, server.DSN())
	g, err := guard.New(l, guard.WithTTL(time.Second))
	require.NoError(t, err)
	var fence uint64
	err = g.Do(t.Context(), "key", func(ctx context.Context) error {
		fence = guard.Fence(ctx)
		frozen := time.Now()
		server.Freeze(t)
		<-ctx.Done()
		require.Less(t, time.Since(frozen), 2*time.Second, "although the server does not answer")
		require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
		server.Thaw()
		return nil
	})
	require.ErrorIs(t, err, guard.ErrLost)
	last := claim("key", long)
	next := awaitGrant(t, other, last)
	require.Greater(t, next.Fence, fence)
	require.NoError(t, g.Close(context.Background()))
	require.NoError(t, other.InTx(t.Context(), under(last, next.Fence), func(*sql.Tx) error { return nil }))
}

// The outcome of a statement whose connection is cut is unknown.
func TestLong_connectionsAreCut(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := postgrestest.Start(t)
	admin := open(t, server.DSN())
	admin.SetMaxIdleConns(-1) // each cut makes a connection, as the calls after it have to
	s := suite(t, server, open(t, server.DSN()+"&application_name=cut"), open(t, server.DSN()+"&application_name=cut"))
	ctx, cancel := context.WithCancel(t.Context())
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for ctx.Err() == nil {
			start := time.Now()
			_, _ = admin.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE application_name = 'cut' AND random() < 0.3`)
			// most calls are to succeed, also on a slow machine
			time.Sleep(max(20*time.Millisecond, 4*time.Since(start)))
		}
	})
	cut := s.Again
	s.New = func(t testing.TB) guard.Locker {
		exec(t, admin, `TRUNCATE onerun_leases`)
		return cut(t, nil)
	}
	guardtest.RunExclusion(t, s)
	cancel()
	cutter.Wait()
}

func TestLong_failoverToAReplica(t *testing.T) {
	redistest.Long(t)
	primary := postgrestest.Start(t)
	l, db := migrated(t, primary.DSN())
	early := claim("before", long)
	mustAcquire(t, l, early)
	old := claim("old row", long)
	mustAcquire(t, l, old)
	_, err := l.Release(t.Context(), old, driver.After{})
	require.NoError(t, err)
	replica := primary.StartReplica(t)
	after := open(t, replica.DSN())
	standby := postgres.New(after)
	require.Eventually(t, func() bool { // it has received all of that
		var same bool
		return db.QueryRowContext(t.Context(), `SELECT bool_and(replay_lsn >= pg_current_wal_lsn()) FROM pg_stat_replication`).
			Scan(&same) == nil && same
	}, 20*time.Second, 10*time.Millisecond)

	// A standby grants nothing, and answers nothing: it may be behind.
	sharing := claim("before", long)
	sharing.MaxHolders = 2
	for _, c := range []driver.Claim{claim("before", long), claim("free", long), sharing} {
		_, err = standby.TryAcquire(t.Context(), c)
		requireKind(t, driver.KindReadOnly, err)
	}
	_, err = standby.Renew(t.Context(), early)
	requireKind(t, driver.KindReadOnly, err)
	_, err = standby.Show(t.Context(), "before")
	requireKind(t, driver.KindReadOnly, err)
	_, err = driver.Entries(t.Context(), standby, "job", 1)
	requireKind(t, driver.KindReadOnly, err)
	_, err = standby.Raise(t.Context(), "job", "n", 0)
	requireKind(t, driver.KindReadOnly, err)

	// What is committed from now on does not reach the replica.
	exec(t, after, `ALTER SYSTEM SET primary_conninfo = ''`)
	exec(t, after, `SELECT pg_reload_conf()`)
	require.Eventually(t, func() bool {
		var n int
		return db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_replication`).Scan(&n) == nil && n == 0
	}, 20*time.Second, 10*time.Millisecond)
	lost, again := claim("lost", long), claim("old row", long)
	lost.Fences.Reserve = 100
	fences := map[string]uint64{}
	for _, c := range []driver.Claim{lost, again} {
		g := mustAcquire(t, l, c)
		fences[c.Key] = g.Fence + uint64(g.Reserved)
	}
	primary.Kill(t)
	replica.Promote(t)

	held, err := standby.Renew(t.Context(), early)
	require.NoError(t, err)
	require.True(t, held, "what the replica had received is kept")
	for _, c := range []driver.Claim{lost, again} {
		held, err = standby.Renew(t.Context(), c)
		require.NoError(t, err)
		require.False(t, held, "the holder learns of the loss at its next renewal")
		g := mustAcquire(t, standby, claim(c.Key, long))
		require.Greater(t, g.Fence, fences[c.Key], "and the fence tells the two apart")
		require.ErrorIs(t, standby.InTx(t.Context(), under(c, fences[c.Key]), nil), postgres.ErrStale)
	}
}

// With a synchronous standby, a lease that was granted is on both servers.
func TestLong_failoverToASynchronousReplica(t *testing.T) {
	redistest.Long(t)
	primary := postgrestest.Start(t)
	l, db := migrated(t, primary.DSN())
	replica := primary.StartReplica(t)
	exec(t, db, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	exec(t, db, `SELECT pg_reload_conf()`)
	require.Eventually(t, func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`).Scan(&n)
		return err == nil && n == 1
	}, 20*time.Second, 10*time.Millisecond)
	c := claim("key", long)
	g := mustAcquire(t, l, c)
	primary.Kill(t)
	replica.Promote(t)
	after := postgres.New(open(t, replica.DSN()))
	busy, err := after.TryAcquire(t.Context(), claim("key", long))
	require.NoError(t, err)
	require.Equal(t, driver.Busy, busy.State)
	held, err := after.Renew(t.Context(), c)
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, after.InTx(t.Context(), under(c, g.Fence), func(*sql.Tx) error { return nil }))
}
