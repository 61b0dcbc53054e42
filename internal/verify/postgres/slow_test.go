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
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// Commits wait for a synchronous standby that does not answer for a while. That costs no lease, no
// marker and no error, as long as it takes no longer than a quarter of the TTL.
func TestLong_aStalledStandbyCostsNothing(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	const ttl = 10 * time.Second
	server := postgrestest.Start(t)
	admin, err := sql.Open("pgx", server.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	admin.SetMaxOpenConns(1)
	standby := func(names string) {
		for _, statement := range []string{
			"SET synchronous_commit = local", "ALTER SYSTEM SET synchronous_standby_names = '" + names + "'", "SELECT pg_reload_conf()",
		} {
			_, err := admin.ExecContext(context.Background(), statement)
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			var set string
			err := admin.QueryRowContext(context.Background(), "SHOW synchronous_standby_names").Scan(&set)
			return err == nil && set == names
		}, 5*time.Second, 5*time.Millisecond)
	}
	var stalls sync.WaitGroup
	t.Cleanup(stalls.Wait)
	stall := func() {
		standby("away")
		stalls.Go(func() {
			time.Sleep(ttl / 4)
			standby("")
		})
	}

	dsn := server.Database(t)
	db, err := sql.Open("pgx", dsn+"&synchronous_commit=on")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	l := postgres.New(db)
	require.NoError(t, l.Migrate(t.Context()))
	g, err := guard.New(l, guard.WithTTL(ttl))
	require.NoError(t, err)
	once := guard.WithOnce(time.Hour)
	nothing := func(context.Context) error { return nil }

	for name, work := range map[string]func(context.Context) error{
		"release": func(context.Context) error { stall(); return nil },
		"renewal": func(ctx context.Context) error {
			time.Sleep(ttl / 4) // the renewal comes soon
			stall()
			select {
			case <-time.After(ttl):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		},
	} {
		require.NoError(t, g.Do(t.Context(), name, work, once), name)
		require.ErrorIs(t, g.Do(t.Context(), name, nothing, once), guard.ErrDone, name)
	}
	stall()
	require.NoError(t, g.Do(t.Context(), "claim", nothing, once), "claim")
	require.NoError(t, g.Close(t.Context()))
}
