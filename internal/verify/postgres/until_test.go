package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// What is promised until something lasts until then, whatever the Locker deletes meanwhile: after
// 400 days, for which a ledger keeps what nobody uses, and after years.
func TestUntil_whatIsPromisedLastsForYears(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	db, err := sql.Open("pgx", server.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	l := postgres.New(db)
	require.NoError(t, l.Migrate(t.Context()))
	g, err := guard.New(l, guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	c, err := guardcron.NewControl(g)
	require.NoError(t, err)
	nothing := func(context.Context) error { return nil }
	pass := func(days int) { // makes all rows so much older, and deletes what is old
		_, err := db.ExecContext(t.Context(),
			`UPDATE onerun_leases SET ends = ends - $1::int * interval '1 day', forget_on = forget_on - $1::int`, days)
		require.NoError(t, err)
		_, err = l.Clean(t.Context(), 1000)
		require.NoError(t, err)
	}
	raise := func(to int64) int64 {
		was, err := l.Raise(t.Context(), "own", "read", to)
		require.NoError(t, err)
		return was
	}

	require.NoError(t, c.Pause(t.Context(), "paused", 0, inspect.By{Actor: "alice"}))
	require.NoError(t, c.Pause(t.Context(), "paused for years", 20*365*24*time.Hour, inspect.By{Actor: "alice"}))
	require.NoError(t, g.Do(t.Context(), "done", nothing, guard.WithOnce(3650*24*time.Hour)))
	require.NoError(t, g.Do(t.Context(), "kept", nothing, guard.WithMinHold(3650*24*time.Hour)))
	require.Zero(t, raise(7))
	for _, days := range []int{404, 365, 1000, 1800} {
		pass(days)
		for _, job := range []string{"paused", "paused for years"} {
			paused, err := c.Paused(t.Context(), job)
			require.NoError(t, err)
			require.True(t, paused, "%s after %d days", job, days)
		}
		require.ErrorIs(t, g.Do(t.Context(), "done", nothing), guard.ErrDone)
		require.ErrorIs(t, g.Do(t.Context(), "kept", nothing), guard.ErrBusy)
	}
	pass(365) // more than ten years by now
	require.NoError(t, g.Do(t.Context(), "done", nothing))
	require.NoError(t, g.Do(t.Context(), "kept", nothing))

	require.Zero(t, raise(7), "nobody has used it for 400 days")
	for range 10 {
		pass(300)
		require.EqualValues(t, 7, raise(0), "a counter that is read is kept")
	}
}
