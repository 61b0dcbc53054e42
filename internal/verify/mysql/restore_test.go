package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// Fences grow although the restored table has forgotten the last ones. Done markers that are newer
// than the backup are lost.
func restoredFromABackup(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	g, err := guard.New(l)
	require.NoError(t, err)
	var last uint64
	run := func(key string, opts ...guard.Option) error {
		return g.Do(t.Context(), key, func(ctx context.Context) error {
			if fence := guard.Fence(ctx); key == "key" {
				require.Greater(t, fence, last)
				last = fence
			}
			return nil
		}, opts...)
	}
	require.NoError(t, run("key"))
	require.NoError(t, run("before", guard.WithOnce(time.Hour)))
	exec(t, db, "CREATE TABLE backup AS SELECT * FROM onerun_leases")
	for range 20 {
		require.NoError(t, run("key"))
	}
	require.NoError(t, run("after", guard.WithOnce(time.Hour)))
	exec(t, db, "DELETE FROM onerun_leases")
	exec(t, db, "INSERT INTO onerun_leases SELECT * FROM backup")
	// A fence can be 131 ms ahead of the clock, and a restore takes longer.
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, run("key"))
	require.ErrorIs(t, run("before", guard.WithOnce(time.Hour)), guard.ErrDone)
	require.NoError(t, run("after", guard.WithOnce(time.Hour)))
	require.NoError(t, g.Close(t.Context()))
}
