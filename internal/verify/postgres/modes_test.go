package postgres_test

import (
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// How a statement goes out and how the server writes bytes make no difference, and neither do the
// driver and a proxy.
func eachModeOfPgxAndEachByteaOutput(t *testing.T, server *postgrestest.Server) {
	dsn := server.Database(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for _, output := range []string{"hex", "escape"} {
			t.Run(mode+" "+output, func(t *testing.T) {
				s := store(server, dsn+"&default_query_exec_mode="+mode+"&bytea_output="+output)
				l, db := s.Migrated(t)
				exec(t, db, s.Empty)
				sqltest.Usual(t, s, l, l)
			})
		}
	}
	for name, s := range map[string]*sqltest.Store{
		"PgBouncer": store(server, server.StartPooler(t)),
		"lib/pq":    byPQ(server, dsn),
	} {
		t.Run(name, func(t *testing.T) {
			l, db := s.Migrated(t)
			exec(t, db, s.Empty)
			sqltest.Usual(t, s, l, l)
		})
	}
}
