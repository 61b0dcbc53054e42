package mysql_test

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// suite returns what the suite needs to know about a store.
func suite(t testing.TB, s *sqltest.Store) guardtest.Backend {
	t.Helper()
	return s.Suite(t, s.Client(t), s.Client(t))
}

func TestSuite(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, suite(t, stores(t)(t)))
}

// What a DSN can say makes no difference.
func TestWeekly_suiteWithOtherSessions(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := mysqltest.Start(t)
	for _, c := range []struct{ name, level, params string }{
		{"found rows", "READ-COMMITTED", "clientFoundRows=true&interpolateParams=true&parseTime=true&loc=Europe%2FBerlin"},
		{"no modes", "SERIALIZABLE", "sql_mode=%27%27&sql_safe_updates=1"},
		{"latin1", "REPEATABLE-READ", "charset=latin1&sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES,ORACLE%27&time_zone=%27%2B05:45%27"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := store(server, with(isolated(server, server.Database(t), c.level), c.params))
			s.Freeze = nil
			guardtest.Run(t, suite(t, s))
		})
	}
}

// A fleet that moves from MySQL to PostgreSQL, or back, has both for a while.
func TestWeekly_suiteWhileAFleetMovesToPostgreSQL(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	to := postgrestest.Start(t)
	next := sqltest.Store{
		Open:  func(sqltest.DialFunc) (*sql.DB, error) { return sql.Open("pgx", to.DSN()) },
		New:   func(db *sql.DB) sqltest.Locker { return postgres.New(db) },
		Empty: `TRUNCATE onerun_leases`,
	}
	sqltest.RunMove(t, suite(t, stores(t)(t)), suite(t, &next))
}

// The rows that all stores on SQL have, and those of MySQL alone.
func TestStore(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	own := map[string]sqltest.Test{
		"a fence is checked in the transaction of the user at READ COMMITTED": func(t *testing.T, _ *sqltest.Store) {
			sqltest.Fences(t, store(server, isolated(server, server.Database(t), "READ-COMMITTED")))
		},
		"a key whose rows were deleted by hand works again": deletedByHand,
		"a claim that shares a key waits for room":          waitsForRoom,
		"a trigger of the user disturbs nothing":            withATrigger,
		"a session that uses another database uses the same table": func(t *testing.T, _ *sqltest.Store) {
			otherDatabase(t, server)
		},
		"settings that cannot work are refused": func(t *testing.T, s *sqltest.Store) {
			db := s.Client(t)
			sqltest.RequireRefused(t, mysql.New(nil), mysql.New(db, nil), mysql.New(db, mysql.WithTable("")),
				mysql.New(db, mysql.WithTable("a.b.c")), mysql.New(db, mysql.WithTable("x`; DROP TABLE y")))
		},
	}
	for name, test := range map[string]func(t *testing.T, dsn string){
		"a host vanishes at any statement":           hostVanishesAtAnyStatement,
		"the table is restored from a backup":        restoredFromABackup,
		"the clock of the server steps back":         clockStepsBack,
		"a renewal that waits shortens no later one": renewalsThatWait,
	} {
		own[name] = func(t *testing.T, _ *sqltest.Store) { test(t, server.Database(t)) }
	}
	sqltest.Run(t, func(t testing.TB) *sqltest.Store { return store(server, server.Database(t)) }, own)
}

// An operator may delete a row by hand, and not know of its gate, or the reverse.
func deletedByHand(t *testing.T, s *sqltest.Store) {
	l, db := s.Migrated(t)
	nothing := func(*sql.Tx) error { return nil }
	for name, where := range map[string]string{"row": "k = 'gated'", "gate": "k LIKE '_ggated'", "row and gate": "k LIKE '%gated'"} {
		t.Run(name, func(t *testing.T) {
			exec(t, db, `DELETE FROM onerun_leases WHERE k LIKE '%gated'`)
			lease := mustAcquire(t, l, claim("gated", long))
			exec(t, db, `DELETE FROM onerun_leases WHERE `+where)
			if name == "gate" {
				require.Error(t, l.InTx(t.Context(), lease, nothing), "nothing keeps others out")
				sqltest.MustRelease(t, l, lease.Claim)
			}
			next := sqltest.AwaitGrant(t, l, claim("gated", long))
			require.NoError(t, l.InTx(t.Context(), next, nothing))
		})
	}
}
