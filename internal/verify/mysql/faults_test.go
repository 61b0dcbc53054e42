package mysql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
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
	primary := mysqltest.StartPrimary(t)
	dsn := primary.Database(t)
	sqltest.Failover(t, store(primary, dsn), func(t testing.TB) sqltest.Replica {
		server := primary.StartReplica(t)
		replica := store(server, server.DSN(dsn[strings.LastIndex(dsn, "/")+1:]))
		return sqltest.Replica{
			Store: replica,
			Received: func(t testing.TB) {
				sqltest.Eventually(t, replica.Client(t), 1, `SELECT COUNT(*) FROM onerun_leases WHERE k = 'old row' AND state = 'free'`)
			},
			Stop: func(t testing.TB) { // it receives nothing more, and applies what it has received
				require.NoError(t, server.Exec("STOP SLAVE IO_THREAD"))
			},
			Promote: server.Promote,
		}
	})
}

// A primary that was made read-only has handed over to another server. It lets an administrator's
// account write, but no lease is prolonged there, or released: the other server would not know.
func TestReadOnly_countsForAnAdministratorToo(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=50")
	l, _ := migrated(t, server.Database(t))
	c, other := mustAcquire(t, l, claim("k", long)).Claim, mustAcquire(t, l, claim("other", long)).Claim
	require.NoError(t, server.Exec("SET GLOBAL read_only = 1"))
	for _, claims := range [][]driver.Claim{{c}, {c, other}} {
		driver.Await(t.Context(), l, driver.OpRenew, claims, driver.After{}, func(_ int, _ driver.Answer, err error) {
			requireKind(t, driver.KindReadOnly, err)
		})
	}
	_, err := l.Release(t.Context(), c, driver.After{})
	requireKind(t, driver.KindReadOnly, err)
	require.NoError(t, server.Exec("SET GLOBAL read_only = 0"))
	sqltest.MustRelease(t, l, c)
}
