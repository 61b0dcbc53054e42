package sqlite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard"
)

// A check registers the fence of a lease that was handed off in the user's transaction: another one
// would wait for that, and with one connection it could not even begin.
func TestCheckFence_afterAHandOff(t *testing.T) {
	t.Parallel()
	l, db := migrated(t, newFile(t))
	db.SetMaxOpenConns(1)
	g, err := guard.New(l, guard.WithWait(20*time.Second))
	require.NoError(t, err)
	var fences []uint64
	done := make(chan error)
	for range 10 {
		go func() {
			done <- g.Do(t.Context(), "key", func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if err := l.CheckFence(ctx, tx, lease); err != nil {
					return err
				}
				var fence uint64
				err = tx.QueryRowContext(ctx, `SELECT fence FROM onerun_leases WHERE key = CAST('key' AS BLOB)`).Scan(&fence)
				if err != nil {
					return err
				}
				if want := lease.Fence(); fence != want {
					return fmt.Errorf("the store has the fence %d, want %d", fence, want)
				}
				fences = append(fences, fence)
				return tx.Commit()
			})
		}()
	}
	for range 10 {
		require.NoError(t, <-done)
	}
	require.IsIncreasing(t, fences)
	require.NoError(t, g.Close(t.Context()))
}

// A handler writes for longer than its TTL. Its lease cannot be renewed meanwhile, so it is lost,
// and the check before the commit says so. A handler that works first, and then writes, goes on.
func TestCheckFence_inATransactionThatIsLongerThanTheTTL(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	path := newFile(t)
	l, _ := migrated(t, path)
	mine := open(t, path+"?_txlock=immediate")
	other, _ := migrated(t, path)
	g, err := guard.New(l, guard.WithTTL(ttl))
	require.NoError(t, err)
	defer g.Close(context.Background())
	commit := func(ctx context.Context, before, within time.Duration) error {
		lease, _ := guard.FromContext(ctx)
		time.Sleep(before)
		tx, err := mine.BeginTx(context.WithoutCancel(ctx), nil) // the handler ignores its context
		require.NoError(t, err)
		defer tx.Rollback()
		time.Sleep(within)
		if err := l.CheckFence(context.WithoutCancel(ctx), tx, lease); err != nil {
			return err
		}
		return tx.Commit()
	}
	err = g.Do(t.Context(), "key", func(ctx context.Context) error {
		err := commit(ctx, 0, 2*ttl)
		require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
		return err
	})
	require.ErrorIs(t, err, sqlite.ErrStale)
	require.ErrorIs(t, err, guard.ErrLost)
	mustAcquire(t, other, claim("key", 10*time.Millisecond))
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, g.Do(t.Context(), "key", func(ctx context.Context) error { return commit(ctx, 2*ttl, 0) }))
}
