package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// What docs/migrate/redsync.md says of services that have both.
func TestMigrate_redsyncAndOnerunExcludeEachOtherOnlyOnTheSameKeys(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	mutex := redsync.New(goredis.NewPool(rdb)).NewMutex("report", redsync.WithExpiry(time.Minute))
	nothing := func(context.Context) error { return nil }
	plain := single.New(rdb, single.WithPlainKeys(func(key string) string { return key }))
	for _, locker := range []guard.Locker{single.New(rdb), plain, reentrant.New(rdb)} {
		g, err := guard.New(locker)
		require.NoError(t, err)
		_, java := locker.(*reentrant.Locker)
		shared := java || locker == plain

		require.NoError(t, mutex.TryLockContext(t.Context()))
		err = g.Do(t.Context(), "report", nothing)
		switch {
		case locker == plain:
			require.ErrorIs(t, err, guard.ErrBusy)
		case java:
			var refused *guard.StoreError
			require.ErrorAs(t, err, &refused)
			require.EqualValues(t, "wrong_type", refused.Kind)
			require.False(t, guard.Ran(err))
		default:
			require.NoError(t, err)
		}
		_, err = mutex.UnlockContext(t.Context())
		require.NoError(t, err)

		lease, err := g.Acquire(t.Context(), "report")
		require.NoError(t, err)
		err = mutex.TryLockContext(t.Context())
		if shared {
			var taken *redsync.ErrTaken
			require.ErrorAs(t, err, &taken)
			require.True(t, lease.Valid())
		} else {
			require.NoError(t, err)
			_, err = mutex.UnlockContext(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, g.Close(t.Context()))
	}
}
