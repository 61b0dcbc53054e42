package mysql_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

// A primary that was made read-only has handed over to another server. It lets an administrator's
// account write, but no lease is prolonged there, or released: the other server would not know.
func TestReadOnly_countsForAnAdministratorToo(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=50")
	l, _ := migrated(t, server.Database(t))
	c, other := claim("k", long), claim("other", long)
	mustAcquire(t, l, c)
	mustAcquire(t, l, other)
	require.NoError(t, server.Exec("SET GLOBAL read_only = 1"))
	for _, claims := range [][]driver.Claim{{c}, {c, other}} {
		driver.Await(t.Context(), l, driver.OpRenew, claims, driver.After{}, func(_ int, _ driver.Answer, err error) {
			requireKind(t, driver.KindReadOnly, err)
		})
	}
	_, err := l.Release(t.Context(), c, driver.After{})
	requireKind(t, driver.KindReadOnly, err)
	require.NoError(t, server.Exec("SET GLOBAL read_only = 0"))
	held, err := l.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
	require.True(t, held)
}
