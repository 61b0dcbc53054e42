package postgres_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// suite returns what the suite needs to know about a server, for two clients of it.
func suite(t *testing.T, server *postgrestest.Server, here, there *sql.DB, opts ...postgres.Option) guardtest.Backend {
	t.Helper()
	require.NoError(t, postgres.New(here).Migrate(t.Context()))
	flush := func(t testing.TB) {
		settle(t, here, there)
		_, err := here.ExecContext(t.Context(), `TRUNCATE onerun_leases`)
		require.NoError(t, err)
	}
	return guardtest.Backend{
		New:    func(t testing.TB) guard.Locker { flush(t); return postgres.New(here, opts...) },
		Again:  func(testing.TB, guard.Locker) guard.Locker { return postgres.New(there, opts...) },
		Flush:  flush,
		Freeze: func(t testing.TB) func() { server.Freeze(t); return server.Thaw },
		// A round trip takes long beside a millisecond.
		MinTTL: 10 * time.Millisecond,
		Ledger: true, Inspects: true, Notifies: true,
		Shares: []int{2, 3, driver.Unlimited},
		Keys:   []string{"onerun_leases", "{k}", "{k}:fence"},
	}
}

// settle waits until the clients have ended their calls, and the server the sessions that they have
// given up. After a freeze, the last statements arrive late, and lib/pq ends a call only when it
// has the answer.
func settle(t testing.TB, clients ...*sql.DB) {
	t.Helper()
	require.Eventually(t, func() bool {
		open := 0
		for _, db := range clients {
			stats := db.Stats()
			if stats.InUse > 0 {
				return false
			}
			open += stats.OpenConnections
		}
		var sessions int
		err := clients[0].QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND query NOT LIKE 'LISTEN%'`).Scan(&sessions)
		return err == nil && sessions <= max(open, 1)
	}, 20*time.Second, 5*time.Millisecond)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	guardtest.Run(t, suite(t, server, open(t, server.DSN()), open(t, server.DSN())))
}

// Through PgBouncer in transaction mode, each statement may run in another session.
func TestLong_suiteThroughThePooler(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	guardtest.Run(t, poolerSuite(t))
}

// A statement of a higher isolation level fails if another one has written its row meanwhile.
func TestLong_suiteInSerializableTransactions(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := postgrestest.Start(t)
	dsn := server.DSN() + "&default_transaction_isolation=serializable"
	guardtest.Run(t, suite(t, server, open(t, dsn), open(t, dsn)))
}

func poolerSuite(t *testing.T) guardtest.Backend {
	t.Helper()
	server := postgrestest.Start(t)
	pooler := server.StartPooler(t)
	s := suite(t, server, open(t, pooler), open(t, pooler), postgres.WithListener(listenTo(server.DSN())))
	s.Freeze = nil
	return s
}
