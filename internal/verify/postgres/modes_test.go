package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// How a statement goes out and how the server writes bytes make no difference.
func TestLocker_worksInEachModeOfPgxAndWithEachByteaOutput(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	nothing := func(context.Context) error { return nil }
	var record []byte
	for b := range 256 {
		record = append(record, byte(b))
	}
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for _, output := range []string{"hex", "escape"} {
			t.Run(mode+" "+output, func(t *testing.T) {
				db, err := sql.Open("pgx", server.Database(t)+"&default_query_exec_mode="+mode+"&bytea_output="+output)
				require.NoError(t, err)
				t.Cleanup(func() { _ = db.Close() })
				l := postgres.New(db)
				require.NoError(t, l.Migrate(t.Context()))
				g, err := guard.New(l, guard.WithLabel(`a\label`), guard.WithWait(time.Second))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })

				require.NoError(t, g.Do(t.Context(), `k\1`, func(ctx context.Context) error {
					busy := &guard.BusyError{}
					require.ErrorAs(t, g.Do(t.Context(), `k\1`, nothing, guard.WithWait(0)), &busy)
					require.Equal(t, `a\label`, busy.Label)
					lease, _ := guard.FromContext(ctx)
					require.NoError(t, lease.SetRecord(record))
					keys, _, err := l.Keys(ctx, "", "", 10)
					require.NoError(t, err)
					require.Equal(t, []string{`k\1`}, keys)
					return postgres.New(db).InTx(ctx, lease, func(*sql.Tx) error { return nil })
				}, guard.WithOnce(time.Hour)))
				done := &guard.DoneError{}
				require.ErrorAs(t, g.Do(t.Context(), `k\1`, nothing, guard.WithOnce(time.Hour)), &done)
				require.Equal(t, record, done.Record)
				info, err := l.Show(t.Context(), `k\1`)
				require.NoError(t, err)
				require.Equal(t, driver.KeyDone, info.State())

				readers := []guard.Option{guard.WithLimit(2)}
				require.NoError(t, g.Do(t.Context(), "shared", func(context.Context) error {
					return g.Do(t.Context(), "shared", nothing, readers...)
				}, readers...))

				require.NoError(t, l.Append(t.Context(), "log", driver.Entry{At: 1, Record: record}, 10))
				entries, err := driver.Entries(t.Context(), l, "log", 10)
				require.NoError(t, err)
				require.Equal(t, []driver.Entry{{At: 1, Record: record}}, entries)
				_, err = l.Raise(t.Context(), "log", `c\1`, 7)
				require.NoError(t, err)
				was, err := l.Raise(t.Context(), "log", `c\1`, 0)
				require.NoError(t, err)
				require.EqualValues(t, 7, was)
			})
		}
	}
}
