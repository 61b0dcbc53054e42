package mysql_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

// suite returns what the suite needs to know about a server, for two clients of a database.
func suite(t *testing.T, server *mysqltest.Server, here, there *sql.DB) guardtest.Backend {
	t.Helper()
	require.NoError(t, mysql.New(here).Migrate(t.Context()))
	flush := func(t testing.TB) {
		settle(t, here, there)
		exec(t, here, `TRUNCATE onerun_leases`)
	}
	s := guardtest.Backend{
		New:   func(t testing.TB) guard.Locker { flush(t); return mysql.New(here) },
		Again: func(testing.TB, guard.Locker) guard.Locker { return mysql.New(there) },
		Flush: flush,
		// A round trip takes long beside a millisecond.
		MinTTL: 10 * time.Millisecond,
		Ledger: true, Inspects: true, Notifies: true,
		Shares: []int{2, 3, driver.Unlimited},
		Keys:   []string{"onerun_leases", "{k}", "{k}:fence", "Ä", "a ", "a", "A", "'`\"\\?"},
	}
	if server.Own() {
		s.Freeze = func(t testing.TB) func() { server.Freeze(t); return server.Thaw }
	}
	return s
}

// settle waits until the clients have ended their calls, and the server their statements: after a
// freeze, the last ones arrive late.
func settle(t testing.TB, clients ...*sql.DB) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, db := range clients {
			if db.Stats().InUse > 0 {
				return false
			}
		}
		var running int
		err := clients[0].QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.PROCESSLIST
			WHERE DB = DATABASE() AND COMMAND <> 'Sleep' AND ID <> CONNECTION_ID()`).Scan(&running)
		return err == nil && running == 0
	}, 20*time.Second, 5*time.Millisecond)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	dsn := server.Database(t)
	guardtest.Run(t, suite(t, server, open(t, dsn), open(t, dsn)))
}

// What a DSN can say makes no difference.
func TestLong_suiteWithOtherSessions(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := mysqltest.Start(t)
	for name, params := range map[string]string{
		"read committed": "",
		"serializable":   "",
		"found rows":     "clientFoundRows=true&interpolateParams=true&parseTime=true&loc=Europe%2FBerlin",
		"latin1":         "charset=latin1&sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES,ORACLE%27&time_zone=%27%2B05:45%27",
		"no modes":       "sql_mode=%27%27&sql_safe_updates=1",
	} {
		t.Run(name, func(t *testing.T) {
			dsn := server.Database(t)
			if params == "" {
				dsn = isolated(t, server, dsn, strings.ToUpper(strings.ReplaceAll(name, " ", "-")))
			} else {
				dsn = with(dsn, params)
			}
			s := suite(t, server, open(t, dsn), open(t, dsn))
			s.Freeze = nil
			guardtest.Run(t, s)
		})
	}
}
