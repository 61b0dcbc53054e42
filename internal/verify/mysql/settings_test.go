package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// What a deploy can change in a DSN or on a server makes no difference, or is an error that says
// so.
func TestSettings_makeNoDifference(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "log-bin=log", "binlog-format=STATEMENT", "sync-binlog=1", "max-prepared-stmt-count=0",
		"query-cache-type=1", "query-cache-size=1M", "innodb-snapshot-isolation=1")
	l, _ := migrated(t, with(server.Database(t), "binlog_format='MIXED'"))
	warnings := l.Warnings(t.Context())
	require.Len(t, warnings, 1)
	require.ErrorContains(t, warnings[0], "binlog_format is STATEMENT")
	for name, c := range map[string]struct {
		params string
		kind   driver.StoreErrorKind
		says   string
	}{
		"plain":                        {params: "binlog_format='ROW'"},
		"client":                       {params: "clientFoundRows=true&parseTime=true&multiStatements=true&loc=Europe%2FBerlin"},
		"arguments by the client":      {params: "interpolateParams=true"},
		"modes":                        {params: "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"},
		"log of statements":            {params: "binlog_format='STATEMENT'"},
		"mixed log":                    {params: "binlog_format='MIXED'&tx_isolation='READ-COMMITTED'"},
		"log of rows":                  {params: "binlog_format='ROW'&tx_isolation='READ-COMMITTED'"},
		"bounded statements":           {params: "max_statement_time=10"},
		"statements, but no snapshots": {"binlog_format='STATEMENT'&tx_isolation='READ-COMMITTED'", driver.KindSettings, "set binlog_format to"},
		"read-only transactions":       {"tx_read_only=1", driver.KindReadOnly, "READ ONLY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := server.Database(t)
			admin, _ := migrated(t, dsn)
			if c.params != "" {
				dsn = with(dsn, c.params)
			}
			db := open(t, dsn)
			if c.kind != "" {
				_, err := mysql.New(db).TryAcquire(t.Context(), claim("key", long))
				requireKind(t, c.kind, err)
				require.ErrorContains(t, err, c.says)
				return
			}
			sqltest.Usual(t, store(server, dsn), admin, mysql.New(db))
		})
	}
	t.Run("a check after a read", func(t *testing.T) { checkAfterARead(t, with(server.Database(t), "binlog_format='ROW'")) })
}

// A check in a transaction that has read before the last grant finds the lease stale. MariaDB with
// innodb_snapshot_isolation has an error for that.
func checkAfterARead(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	first := claim("key", long)
	mustAcquire(t, l, first)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM onerun_leases`).Scan(new(int)))
	_, err = l.Release(t.Context(), first, driver.After{})
	require.NoError(t, err)
	next := claim("key", long)
	fence := mustAcquire(t, l, next).Fence
	require.ErrorIs(t, l.CheckFence(t.Context(), tx, under(next, fence)), mysql.ErrStale)
}

// A trigger of the user does not disturb what a statement reports.
func withATrigger(t *testing.T, s *sqltest.Store) {
	l, db := s.Migrated(t)
	exec(t, db, `CREATE TABLE audit (id INT AUTO_INCREMENT PRIMARY KEY, k VARBINARY(2048))`)
	for _, event := range []string{"INSERT", "UPDATE"} {
		exec(t, db, fmt.Sprintf(`CREATE TRIGGER audit_%s AFTER %s ON onerun_leases FOR EACH ROW INSERT INTO audit (k) VALUES (NEW.k)`, event, event))
	}
	sqltest.Usual(t, s, l, l)
}

// The clock of the server steps back by an hour. No lease ends early, and no fence falls.
func clockStepsBack(t *testing.T, dsn string) {
	l, _ := migrated(t, dsn)
	held, used := claim("held", time.Minute), claim("used", time.Minute)
	fence := mustAcquire(t, l, used).Fence
	held.Fence = mustAcquire(t, l, held).Fence
	_, err := l.Release(t.Context(), used, driver.After{})
	require.NoError(t, err)
	late, db := migrated(t, with(dsn, fmt.Sprint("timestamp=", time.Now().Add(-time.Hour).Unix())))
	busy, err := late.TryAcquire(t.Context(), claim("held", time.Minute))
	require.NoError(t, err)
	require.Equal(t, driver.Busy, busy.State)
	require.Greater(t, mustAcquire(t, late, used).Fence, fence)
	exec(t, db, `UPDATE onerun_leases SET forget_on = 0, ends = 0 WHERE k = 'used'`)
	n, err := late.Clean(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n, "a row with a fence of the future stays")
	ok, err := late.Renew(t.Context(), held)
	require.NoError(t, err)
	require.True(t, ok)
}

// Renewals of a claim that wait for its row end in their order, so the later one counts.
func renewalsThatWait(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	second, _ := migrated(t, dsn)
	c := claim("key", long)
	mustAcquire(t, l, c)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), `SELECT 1 FROM onerun_leases WHERE k = 'key' FOR UPDATE`)
	require.NoError(t, err)
	answers := make(chan error, 2)
	var later time.Time
	for _, by := range []*mysql.Locker{l, second} {
		later = time.Now()
		go func() {
			_, err := by.Renew(t.Context(), c)
			answers <- err
		}()
		time.Sleep(500 * time.Millisecond) // so that the clocks of the two statements differ
	}
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-answers)
	require.NoError(t, <-answers)
	info, err := l.Show(t.Context(), "key")
	require.NoError(t, err)
	require.Greater(t, info.Holders[0].Left+time.Since(later), long-250*time.Millisecond)
}
