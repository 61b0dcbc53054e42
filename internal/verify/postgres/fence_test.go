package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const long = time.Minute

// claim returns a claim of the key with an ID of its own.
func claim(key string, ttl time.Duration) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: ttl, Label: "claimed by " + id}
}

// mustAcquire makes a claim that must be granted.
func mustAcquire(t testing.TB, l *postgres.Locker, c driver.Claim) driver.Grant {
	t.Helper()
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.State)
	return g
}

// awaitGrant makes a claim until it is granted.
func awaitGrant(t testing.TB, l *postgres.Locker, c driver.Claim) (g driver.Grant) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		g, err = l.TryAcquire(t.Context(), c)
		return err == nil && g.State == driver.Granted
	}, 20*time.Second, 5*time.Millisecond)
	return g
}

// A stock is a table with a number that is read and written in two steps.
func newStock(t testing.TB, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `CREATE TABLE stock AS SELECT 100 AS remaining`)
	require.NoError(t, err)
}

func sell(ctx context.Context, tx *sql.Tx) error {
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT remaining FROM stock`).Scan(&n); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE stock SET remaining = $1`, n-1)
	return err
}

func remaining(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT remaining FROM stock`).Scan(&n))
	return n
}

func checksFences(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	other, _ := migrated(t, dsn)
	newStock(t, db)
	selling := func(tx *sql.Tx) error { return sell(t.Context(), tx) }

	t.Run("a write under a fence that is not the newest does not commit", func(t *testing.T) {
		before := remaining(t, db)
		first := mustAcquire(t, l, claim("stale", 50*time.Millisecond))
		second := claim("stale", long)
		g := awaitGrant(t, other, second)
		require.ErrorIs(t, l.InTx(t.Context(), "stale", first.Fence, selling), postgres.ErrStale)
		require.Equal(t, before, remaining(t, db))
		require.NoError(t, other.InTx(t.Context(), "stale", g.Fence, selling))
		require.Equal(t, before-1, remaining(t, db))
		for _, fence := range []uint64{0, g.Fence - 1, g.Fence + 1, g.Fence + 1<<40} {
			require.ErrorIs(t, l.InTx(t.Context(), "stale", fence, selling), postgres.ErrStale)
		}
		require.ErrorIs(t, l.InTx(t.Context(), "unknown", g.Fence, selling), postgres.ErrStale)
		_, err := other.Release(t.Context(), second, driver.After{})
		require.NoError(t, err)
		require.ErrorIs(t, l.InTx(t.Context(), "stale", g.Fence, selling), postgres.ErrStale)
		require.Equal(t, before-1, remaining(t, db))
	})

	// The first holder reads 100 and is paused past its lease. If another one could read before the
	// first one commits, two sales would leave 99.
	for name, among := range map[string]int{"alone": 1, "shared": 2} {
		t.Run("nobody is granted the key before the transaction has ended: "+name, func(t *testing.T) {
			before := remaining(t, db)
			key := "paused " + name
			c := claim(key, long)
			first := mustAcquire(t, l, c)
			begun, proceed, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				ended <- l.InTx(t.Context(), key, first.Fence, func(tx *sql.Tx) error {
					close(begun)
					<-proceed
					return sell(t.Context(), tx)
				})
			}()
			<-begun
			c.TTL = time.Millisecond
			held, err := l.Renew(t.Context(), c)
			require.NoError(t, err)
			require.True(t, held)
			time.Sleep(20 * time.Millisecond) // the lease expires
			next := claim(key, long)
			next.Among = among
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err = other.TryAcquire(ctx, next)
			require.ErrorIs(t, err, driver.ErrStore, "the row is locked")
			close(proceed)
			require.NoError(t, <-ended)
			g := awaitGrant(t, other, next)
			require.Greater(t, g.Fence, first.Fence)
			require.NoError(t, other.InTx(t.Context(), key, g.Fence, selling))
			require.Equal(t, before-2, remaining(t, db))
		})
	}

	t.Run("renewals and the release do not wait for the transaction", func(t *testing.T) {
		c := claim("renewed", long)
		g := mustAcquire(t, l, c)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		require.NoError(t, l.InTx(ctx, c.Key, g.Fence, func(tx *sql.Tx) error {
			for range 3 {
				held, err := l.Renew(ctx, c)
				require.NoError(t, err)
				require.True(t, held)
				l.RenewBatch(ctx, []driver.Claim{c}, func(_ int, held bool, err error) {
					require.NoError(t, err)
					require.True(t, held)
				})
			}
			require.NoError(t, other.CheckFence(ctx, tx, c.Key, g.Fence))
			held, err := l.Release(ctx, c, driver.After{})
			require.NoError(t, err)
			require.True(t, held)
			return nil
		}))
	})

	t.Run("a fence that was handed off inside of the process replaces the one before", func(t *testing.T) {
		var g driver.Grant
		require.Eventually(t, func() bool { // a new key reserves none for 131 ms
			c := claim("handed off", long)
			c.Reserve = 3
			g = mustAcquire(t, l, c)
			if g.Reserved == 0 {
				_, err := l.Release(t.Context(), c, driver.After{})
				require.NoError(t, err)
			}
			return g.Reserved > 0
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, l.InTx(t.Context(), "handed off", g.Fence, selling))
		require.NoError(t, l.InTx(t.Context(), "handed off", g.Fence+2, selling))
		require.NoError(t, l.InTx(t.Context(), "handed off", g.Fence+2, selling))
		for _, fence := range []uint64{g.Fence, g.Fence + 1, g.Fence + 4} {
			require.ErrorIs(t, l.InTx(t.Context(), "handed off", fence, selling), postgres.ErrStale)
		}
	})

	t.Run("each claim that shares a key has its fence", func(t *testing.T) {
		var grants []driver.Grant
		var claims []driver.Claim
		for range 2 {
			c := claim("shared", long)
			c.Among = 2
			claims = append(claims, c)
			grants = append(grants, mustAcquire(t, l, c))
		}
		for _, g := range grants {
			require.NoError(t, l.InTx(t.Context(), "shared", g.Fence, selling))
		}
		_, err := l.Release(t.Context(), claims[0], driver.After{Keep: long})
		require.NoError(t, err)
		require.ErrorIs(t, l.InTx(t.Context(), "shared", grants[0].Fence, selling), postgres.ErrStale)
		require.NoError(t, l.InTx(t.Context(), "shared", grants[1].Fence, selling))
	})

	t.Run("a run that has lost its lease rolls back", func(t *testing.T) {
		before := remaining(t, db)
		g, err := guard.New(l, guard.WithTTL(time.Second))
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close(context.Background())) }()
		err = g.Do(t.Context(), "operator", func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			run := func(tx *sql.Tx) error { return sell(ctx, tx) }
			if err := l.InTx(ctx, lease.Key(), lease.Fence(), run); err != nil {
				return err
			}
			broken, err := other.Break(ctx, lease.Key(), lease.ID(), driver.Break{ID: rand.Text(), Now: true})
			if err != nil || !broken {
				return errors.Join(err, errors.New("not broken"))
			}
			return l.InTx(ctx, lease.Key(), lease.Fence(), run)
		})
		require.ErrorIs(t, err, postgres.ErrStale)
		require.Equal(t, before-1, remaining(t, db))
	})
}
