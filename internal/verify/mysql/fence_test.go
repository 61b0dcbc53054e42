package mysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

const long = time.Minute

// claim returns a claim of the key with an ID of its own.
func claim(key string, ttl time.Duration) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: ttl, Label: "claimed by " + id}
}

// A leased claim is a lease that was acquired without a Guard.
type leased driver.Claim

func (l leased) Claims() []driver.Claim { return []driver.Claim{driver.Claim(l)} }

// under returns the lease of a claim that was granted, under a fence.
func under(c driver.Claim, fence uint64) leased {
	c.Fence = fence
	return leased(c)
}

// migrated returns a Locker on a new client, and the client. The table exists.
func migrated(t testing.TB, dsn string, opts ...mysql.Option) (*mysql.Locker, *sql.DB) {
	t.Helper()
	db := open(t, dsn)
	l := mysql.New(db, opts...)
	require.NoError(t, l.Migrate(t.Context()))
	return l, db
}

// mustAcquire makes a claim that must be granted.
func mustAcquire(t testing.TB, l *mysql.Locker, c driver.Claim) driver.Answer {
	t.Helper()
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.State)
	return g
}

// awaitGrant makes a claim until it is granted.
func awaitGrant(t testing.TB, l *mysql.Locker, c driver.Claim) (g driver.Answer) {
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
	exec(t, db, `CREATE TABLE stock ENGINE=InnoDB AS SELECT 100 AS remaining`)
}

func sell(ctx context.Context, tx *sql.Tx) error {
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT remaining FROM stock`).Scan(&n); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE stock SET remaining = ?`, n-1)
	return err
}

func remaining(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT remaining FROM stock`).Scan(&n))
	return n
}

// isolated returns a data source name whose sessions have an isolation level.
func isolated(t testing.TB, server *mysqltest.Server, dsn, level string) string {
	t.Helper()
	setting := "transaction_isolation" // MariaDB before 11.1 has the name that MySQL 8 has no more
	if server.Exec("SET transaction_isolation = '"+level+"'") != nil {
		setting = "tx_isolation"
	}
	return with(dsn, setting+"="+url.QueryEscape("'"+level+"'"))
}

func TestFence_isCheckedInTheTransactionOfTheUser(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			checksFences(t, isolated(t, server, server.Database(t), level))
		})
	}
}

func checksFences(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	other, _ := migrated(t, dsn)
	newStock(t, db)
	selling := func(tx *sql.Tx) error { return sell(t.Context(), tx) }

	t.Run("a write under a fence that is not the newest does not commit", func(t *testing.T) {
		before := remaining(t, db)
		old := claim("stale", 50*time.Millisecond)
		first := mustAcquire(t, l, old)
		second := claim("stale", long)
		g := awaitGrant(t, other, second)
		require.ErrorIs(t, l.InTx(t.Context(), under(old, first.Fence), selling), mysql.ErrStale)
		require.Equal(t, before, remaining(t, db))
		require.NoError(t, other.InTx(t.Context(), under(second, g.Fence), selling))
		require.Equal(t, before-1, remaining(t, db))
		for _, fence := range []uint64{0, g.Fence - 1, g.Fence + 1, g.Fence + 1<<40} {
			require.ErrorIs(t, l.InTx(t.Context(), under(second, fence), selling), mysql.ErrStale)
		}
		require.ErrorIs(t, l.InTx(t.Context(), under(claim("unknown", long), g.Fence), selling), mysql.ErrStale)
		require.ErrorIs(t, l.InTx(t.Context(), under(claim("stale", long), g.Fence), selling), mysql.ErrStale, "another claim")
		require.ErrorIs(t, l.InTx(t.Context(), new(guard.Leases), selling), mysql.ErrStale, "no claim")
		_, err := other.Release(t.Context(), second, driver.After{})
		require.NoError(t, err)
		require.ErrorIs(t, l.InTx(t.Context(), under(second, g.Fence), selling), mysql.ErrStale)
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
			next := claim(key, long)
			next.MaxHolders = among
			require.NoError(t, l.InTx(t.Context(), under(c, first.Fence), func(tx *sql.Tx) error {
				c.TTL = time.Millisecond
				held, err := l.Renew(t.Context(), c)
				require.NoError(t, err)
				require.True(t, held)
				time.Sleep(20 * time.Millisecond) // the lease expires
				for range 3 {
					began := time.Now()
					busy, err := other.TryAcquire(within(t, 10*time.Second), next)
					require.NoError(t, err)
					require.Equal(t, driver.Busy, busy.State)
					require.Less(t, time.Since(began), 5*time.Second, "a claim does not wait for the transaction")
				}
				return sell(t.Context(), tx)
			}))
			g := awaitGrant(t, other, next)
			require.Greater(t, g.Fence, first.Fence)
			require.NoError(t, other.InTx(t.Context(), under(next, g.Fence), selling))
			require.Equal(t, before-2, remaining(t, db))
		})
	}

	// A snapshot from before the newest grant shows the lease as it was.
	t.Run("a transaction that has read before cannot pass for a holder", func(t *testing.T) {
		old := claim("snapshot", long)
		first := mustAcquire(t, l, old)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = tx.ExecContext(t.Context(), `SELECT * FROM onerun_leases WHERE k = 'another'`)
		require.NoError(t, err)
		broken, err := other.Break(t.Context(), old.Key, old.ID, driver.Break{ID: rand.Text(), Now: true})
		require.NoError(t, err)
		require.True(t, broken)
		next := claim("snapshot", long)
		g := mustAcquire(t, other, next)
		require.ErrorIs(t, l.CheckFence(t.Context(), tx, under(old, first.Fence)), mysql.ErrStale)
		require.NoError(t, tx.Rollback())
		require.NoError(t, l.InTx(t.Context(), under(next, g.Fence), selling))
	})

	t.Run("renewals and the release do not wait for the transaction", func(t *testing.T) {
		c, beside := claim("renewed", long), claim("renewed, too", long)
		g := mustAcquire(t, l, c)
		mustAcquire(t, l, beside)
		ctx := within(t, 20*time.Second)
		require.NoError(t, l.InTx(ctx, under(c, g.Fence), func(tx *sql.Tx) error {
			for range 3 {
				held, err := l.Renew(ctx, c)
				require.NoError(t, err)
				require.True(t, held)
				driver.Await(ctx, l, driver.OpRenew, []driver.Claim{c, beside}, driver.After{}, func(_ int, a driver.Answer, err error) {
					require.NoError(t, err)
					require.True(t, a.Held)
				})
			}
			for _, key := range []string{"renewec", "renewee", "renewed 2"} {
				mustAcquire(t, l, claim(key, long)) // the lock is of no other key
			}
			require.NoError(t, other.CheckFence(ctx, tx, under(c, g.Fence)))
			held, err := l.Release(ctx, c, driver.After{})
			require.NoError(t, err)
			require.True(t, held)
			return nil
		}))
	})

	// As by hand-offs inside of the process, which the store does not know.
	for name, among := range map[string]int{"alone": 1, "limit": 3} {
		t.Run("a reserved fence replaces the one before: "+name, func(t *testing.T) {
			c, g := reserving(t, l, "handed off "+name, among)
			for _, fence := range []uint64{g.Fence, g.Fence + 2, g.Fence + 2} {
				require.NoError(t, l.InTx(t.Context(), under(c, fence), selling))
			}
			for _, fence := range []uint64{g.Fence, g.Fence + 1, g.Fence + uint64(g.Reserved) + 1} {
				require.ErrorIs(t, l.InTx(t.Context(), under(c, fence), selling), mysql.ErrStale)
			}
		})
	}

	t.Run("InTx needs one connection after a hand-off", func(t *testing.T) {
		one := open(t, dsn)
		one.SetMaxOpenConns(1)
		alone := mysql.New(one)
		c, g := reserving(t, alone, "one connection", 1)
		ctx := within(t, 20*time.Second)
		require.NoError(t, alone.InTx(ctx, under(c, g.Fence+1), func(tx *sql.Tx) error { return sell(ctx, tx) }))
		require.ErrorIs(t, alone.InTx(ctx, under(c, g.Fence), selling), mysql.ErrStale)
	})

	t.Run("each claim that shares a key has its fence", func(t *testing.T) {
		var grants []driver.Answer
		var claims []driver.Claim
		for range 2 {
			c := claim("shared", long)
			c.MaxHolders = 2
			claims = append(claims, c)
			grants = append(grants, mustAcquire(t, l, c))
		}
		for i, g := range grants {
			require.NoError(t, l.InTx(t.Context(), under(claims[i], g.Fence), selling))
		}
		_, err := l.Release(t.Context(), claims[0], driver.After{Keep: long})
		require.NoError(t, err)
		require.ErrorIs(t, l.InTx(t.Context(), under(claims[0], grants[0].Fence), selling), mysql.ErrStale)
		require.NoError(t, l.InTx(t.Context(), under(claims[1], grants[1].Fence), selling))
	})

	t.Run("DoAll that joins a key leaves no lease stale", func(t *testing.T) {
		g, err := guard.New(l)
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close(context.Background())) }()
		inTx := func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			return l.InTx(ctx, lease, selling)
		}
		require.NoError(t, g.Do(t.Context(), "nested 2", func(outer context.Context) error {
			require.NoError(t, g.DoAll(outer, []string{"nested 1", "nested 2", "nested 3"}, func(ctx context.Context) error {
				require.NoError(t, inTx(outer))
				return inTx(ctx)
			}))
			return inTx(outer)
		}))
	})

	// An operator may delete a row by hand, and not know of its gate, or the reverse.
	for name, where := range map[string]string{"row": "k = 'gated'", "gate": "k LIKE '_ggated'", "row and gate": "k LIKE '%gated'"} {
		t.Run("a key whose "+name+" was deleted works again", func(t *testing.T) {
			exec(t, db, `DELETE FROM onerun_leases WHERE k LIKE '%gated'`)
			c := claim("gated", long)
			g := mustAcquire(t, l, c)
			exec(t, db, `DELETE FROM onerun_leases WHERE `+where)
			if name == "gate" {
				require.Error(t, l.InTx(t.Context(), under(c, g.Fence), selling), "nothing keeps others out")
				released, err := l.Release(t.Context(), c, driver.After{})
				require.NoError(t, err)
				require.True(t, released)
			}
			next := claim("gated", long)
			g = awaitGrant(t, l, next)
			require.NoError(t, l.InTx(t.Context(), under(next, g.Fence), selling))
		})
	}
}

// reserving acquires the key with reserved fences: a new key reserves none for 131 ms.
func reserving(t testing.TB, l *mysql.Locker, key string, among int) (c driver.Claim, g driver.Answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		c = claim(key, long)
		c.MaxHolders, c.Fences.Reserve = among, 100
		g = mustAcquire(t, l, c)
		if g.Reserved >= 3 {
			return true
		}
		_, err := l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		return false
	}, 20*time.Second, 10*time.Millisecond)
	return c, g
}
