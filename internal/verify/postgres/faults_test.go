package postgres_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

func TestLong_faults(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	sqltest.Faults(t, ownStore)
}

func TestLong_failoverToAReplica(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	primary := postgrestest.Start(t)
	s := store(primary, primary.DSN())
	admin := open(t, primary.DSN())
	sqltest.Failover(t, s, func(t testing.TB) sqltest.Replica {
		server := primary.StartReplica(t)
		return sqltest.Replica{
			Store: store(server, server.DSN()),
			Received: func(t testing.TB) {
				sqltest.Eventually(t, admin, 1, `SELECT bool_and(replay_lsn >= pg_current_wal_lsn())::int FROM pg_stat_replication`)
			},
			Stop: func(t testing.TB) {
				after := open(t, server.DSN())
				exec(t, after, `ALTER SYSTEM SET primary_conninfo = ''`)
				exec(t, after, `SELECT pg_reload_conf()`)
				sqltest.Eventually(t, admin, 0, `SELECT count(*) FROM pg_stat_replication`)
			},
			Promote: server.Promote,
		}
	})
}

// With a synchronous standby, a lease that was granted is on both servers.
func TestLong_failoverToASynchronousReplica(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	primary := postgrestest.Start(t)
	l, db := migrated(t, primary.DSN())
	replica := primary.StartReplica(t)
	exec(t, db, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	exec(t, db, `SELECT pg_reload_conf()`)
	sqltest.Eventually(t, db, 1, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`)
	lease := mustAcquire(t, l, claim("key", time.Hour))
	primary.Kill(t)
	replica.Promote(t)
	after := postgres.New(open(t, replica.DSN()))
	sqltest.RequireState(t, driver.Busy, after, "key")
	sqltest.MustRenew(t, after, lease.Claim)
	require.NoError(t, after.InTx(t.Context(), lease, func(*sql.Tx) error { return nil }))
}
