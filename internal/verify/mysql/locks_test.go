package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

// How InnoDB locks decides the shape of the table. A check of a fence in a transaction of the user
// has to keep out grants, but no renewals and no other keys, until the transaction ends.
//
//   - A shared lock of the row would keep out renewals.
//   - A shared lock of a covering, unique index that only grants change was tried: renewals pass.
//     But at REPEATABLE READ, MariaDB 10.11 also locks the gap before the entry, so new keys wait.
//   - So each key has a second row, its gate. Each grant changes it as well, and a renewal does
//     not. A lock by primary key is of one row, and of no gap.
const (
	table = `CREATE TABLE leases (k VARBINARY(1024) PRIMARY KEY, granted BIGINT NOT NULL, ends BIGINT NOT NULL, version BIGINT NOT NULL) ENGINE=InnoDB`
	keys  = `INSERT INTO leases VALUES ('a', 1, 1, 1), ('k', 1, 1, 1), ('z', 1, 1, 1), ('gate a', 1, 1, 1), ('gate k', 1, 1, 1), ('gate z', 1, 1, 1)`
	check = `SELECT granted FROM leases WHERE k = 'gate k' LOCK IN SHARE MODE`
	// A grant asks this first, so that it does not wait.
	probe = `SELECT 1 FROM leases WHERE k = 'gate k' FOR UPDATE NOWAIT`
	grant = `UPDATE leases r JOIN leases g ON g.k = 'gate k' SET r.granted = 2, g.granted = 2, r.version = r.version + 1 WHERE r.k = 'k' AND r.granted = 1`
)

func TestLocks_ofAGateKeepOutGrantsAlone(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for name, level := range map[string]sql.IsolationLevel{
		"read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, with(server.Database(t), "innodb_lock_wait_timeout=1"))
			exec(t, db, table)
			exec(t, db, keys)
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			defer tx.Rollback()
			require.NoError(t, read(t, tx, check))
			for what, statement := range map[string]string{
				"a renewal":                `UPDATE leases SET ends = ends + 1, version = version + 1 WHERE k = 'k' AND ends > 0`,
				"a renewal of several":     `UPDATE leases FORCE INDEX (PRIMARY) SET ends = ends + 1, version = version + 1 WHERE k IN ('a', 'k', 'z')`,
				"a claim of a key before":  `INSERT INTO leases VALUES ('j', 1, 1, 1), ('gate j', 1, 1, 1)`,
				"a claim of a key after":   `INSERT INTO leases VALUES ('l', 1, 1, 1), ('gate l', 1, 1, 1)`,
				"a grant of another key":   `UPDATE leases r JOIN leases g ON g.k = 'gate z' SET r.granted = 2, g.granted = 2 WHERE r.k = 'z'`,
				"the check of a sharer":    check,
				"an operator's look at it": `SELECT version FROM leases WHERE k = 'k' FOR UPDATE`,
			} {
				_, err := db.ExecContext(within(t, 5*time.Second), statement)
				require.NoError(t, err, what)
			}
			_, err = db.ExecContext(within(t, 5*time.Second), probe)
			require.Contains(t, []uint16{1205, 3572}, number(t, err), "a grant is told at once")
			_, err = db.ExecContext(within(t, 5*time.Second), grant)
			require.EqualValues(t, 1205, number(t, err), "a grant waits")
			require.NoError(t, tx.Commit())
			exec(t, db, probe)
			exec(t, db, grant)
		})
	}
}

// The schedule of the lost sale, see docs/concepts.md: a process checks its fence, reads the stock,
// and is paused. Its lease ends, another one sells, and then the first one writes.
func TestLocks_noSaleIsLost(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for name, level := range map[string]sql.IsolationLevel{"read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead} {
		for _, checkFirst := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := open(t, server.Database(t))
				exec(t, db, table)
				exec(t, db, keys)
				exec(t, db, `CREATE TABLE stock (remaining INT) ENGINE=InnoDB`)
				exec(t, db, `INSERT INTO stock VALUES (100)`)
				sells := func(granted int, pause func()) error {
					tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
					require.NoError(t, err)
					defer tx.Rollback()
					if !checkFirst { // the snapshot is older than what follows
						require.NoError(t, read(t, tx, `SELECT 1 FROM stock`))
						pause()
					}
					var n int
					require.NoError(t, tx.QueryRowContext(t.Context(), check).Scan(&n))
					if n != granted {
						return errStale
					}
					require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT remaining FROM stock`).Scan(&n))
					if checkFirst {
						pause()
					}
					_, err = tx.ExecContext(t.Context(), `UPDATE stock SET remaining = ?`, n-1)
					require.NoError(t, err)
					return tx.Commit()
				}
				next := make(chan error, 1)
				first := sells(1, func() { // its lease ends, and another one asks for the key
					go func() {
						_, err := db.ExecContext(context.Background(), grant)
						if err == nil {
							err = sells(2, func() {})
						}
						next <- err
					}()
					if checkFirst {
						time.Sleep(100 * time.Millisecond) // it waits for the lock
						return
					}
					require.NoError(t, <-next)
				})
				want := 98
				if checkFirst {
					require.NoError(t, first)
					require.NoError(t, <-next)
				} else {
					require.ErrorIs(t, first, errStale, "a locking read sees the newest row")
					want = 99
				}
				var n int
				require.NoError(t, db.QueryRowContext(t.Context(), `SELECT remaining FROM stock`).Scan(&n))
				require.Equal(t, want, n)
			})
		}
	}
}

var errStale = errors.New("it is stale")

func read(t testing.TB, tx *sql.Tx, statement string, args ...any) error {
	t.Helper()
	var n int
	return tx.QueryRowContext(t.Context(), statement, args...).Scan(&n)
}

// number returns the number of an error of the server.
func number(t testing.TB, err error) uint16 {
	t.Helper()
	var failed *mysql.MySQLError
	require.ErrorAs(t, err, &failed)
	return failed.Number
}
