package sqlite_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// The lost sale: a holder whose lease has ended does not overwrite what a newer one has sold.
func TestCheckFence_refusesAHolderThatIsLate(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, db := migrated(t, path)
	other, _ := migrated(t, path)
	exec(t, db, `CREATE TABLE stock (remaining INTEGER)`)
	exec(t, db, `INSERT INTO stock VALUES (10)`)
	sell := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE stock SET remaining = remaining - 1`)
		return err
	}
	late := mustAcquire(t, l, claim("stock", 50*time.Millisecond))
	require.NoError(t, l.InTx(t.Context(), late, sell))
	time.Sleep(60 * time.Millisecond)
	require.ErrorIs(t, l.InTx(t.Context(), late, sell), sqlite.ErrStale, "it has expired")
	newer := mustAcquire(t, other, claim("stock", long))
	require.ErrorIs(t, l.InTx(t.Context(), late, sell), sqlite.ErrStale, "there is a newer holder")
	require.ErrorIs(t, l.InTx(t.Context(), leased(claim("other", long)), sell), sqlite.ErrStale, "it never was held")
	require.NoError(t, other.InTx(t.Context(), newer, sell))
	var remaining int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT remaining FROM stock`).Scan(&remaining))
	require.Equal(t, 8, remaining)
}

// A transaction that has checked its fence keeps new holders away, also after its lease has ended.
func TestCheckFence_keepsNewHoldersAway(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, db := migrated(t, path)
	other, _ := migrated(t, path)
	c := mustAcquire(t, l, claim("key", 200*time.Millisecond))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, l.CheckFence(t.Context(), tx, c))
	time.Sleep(250 * time.Millisecond)
	_, err = other.TryAcquire(within(t, 200*time.Millisecond), claim("key", long))
	requireKind(t, driver.KindTimeout, "another connection has written for", err)
	require.NoError(t, tx.Commit())
	mustAcquire(t, other, claim("key", long))
}

// A check waits for another writer, and for no longer than five seconds.
func TestCheckFence_waitsForAnotherWriter(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, db := migrated(t, path)
	c := mustAcquire(t, l, claim("key", long))
	unlock := lock(t, open(t, path))
	time.AfterFunc(200*time.Millisecond, unlock)
	require.NoError(t, l.InTx(t.Context(), c, func(*sql.Tx) error { return nil }))

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM onerun_leases`).Scan(&n))
	mustAcquire(t, l, claim("new", long)) // what the transaction has read is old now
	began := time.Now()
	err = l.CheckFence(t.Context(), tx, c)
	requireKind(t, driver.KindTimeout, "another connection has written", err)
	require.Less(t, time.Since(began), 10*time.Second)
	require.NoError(t, tx.Rollback())
}

// Calls that are handed the lease inside of the process check their own fences.
func TestInTx_afterAHandOff(t *testing.T) {
	t.Parallel()
	l, _ := migrated(t, newFile(t))
	g, err := guard.New(l, guard.WithWait(20*time.Second))
	require.NoError(t, err)
	done := make(chan error)
	for range 20 {
		go func() {
			done <- g.Do(t.Context(), "key", func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				return l.InTx(ctx, lease, func(*sql.Tx) error { return nil })
			})
		}()
	}
	for range 20 {
		require.NoError(t, <-done)
	}
	require.NoError(t, g.Close(t.Context()))
}
