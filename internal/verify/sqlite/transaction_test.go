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
// and the check before the commit says so.
func TestCheckFence_inATransactionThatIsLongerThanTheTTL(t *testing.T) {
	t.Parallel()
	const ttl = 300 * time.Millisecond
	path := newFile(t)
	l, _ := migrated(t, path)
	mine := open(t, path+"?_txlock=immediate&_pragma=busy_timeout(20000)")
	g, err := guard.New(l, guard.WithTTL(ttl))
	require.NoError(t, err)
	defer g.Close(context.Background())
	err = g.Do(t.Context(), "key", func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		tx, err := mine.BeginTx(context.WithoutCancel(ctx), nil) // the handler ignores its context
		require.NoError(t, err)
		defer tx.Rollback()
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
		time.Sleep(ttl) // the lease in the file ends later than the context
		return l.CheckFence(context.WithoutCancel(ctx), tx, lease)
	})
	require.ErrorIs(t, err, sqlite.ErrStale)
	require.ErrorIs(t, err, guard.ErrLost)
	other, _ := migrated(t, path)
	mustAcquire(t, other, claim("key", long))
}
