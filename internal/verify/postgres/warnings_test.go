package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// inTransaction begins a transaction with a snapshot, which ends with the test.
func inTransaction(t *testing.T, db *sql.DB) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(t.Context(), `SELECT count(*) FROM onerun_leases`)
	require.NoError(t, err)
}

// older has sessions with the shadow path see transactions that are older by 6 minutes.
func older(t *testing.T, db *sql.DB) {
	t.Helper()
	exec(t, db, `CREATE SCHEMA shadow`)
	exec(t, db, `CREATE VIEW shadow.pg_stat_activity AS SELECT pid, backend_xmin, backend_type,
		xact_start - interval '6 minutes' AS xact_start FROM pg_catalog.pg_stat_activity`)
}

// ages has sessions with the shadow path count each transaction as 200,000.
func ages(t *testing.T, db *sql.DB) {
	t.Helper()
	exec(t, db, `CREATE SCHEMA shadow`)
	exec(t, db, `CREATE FUNCTION shadow.age(xid) RETURNS int LANGUAGE sql AS 'SELECT 200000'`)
}

// What can make leases slow is a warning, and nothing else is.
func TestWarnings_nameWhatMakesLeasesSlow(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, "fsync=on", "autovacuum=off", "max_prepared_transactions=2")
	nothing := func(*testing.T, string, *sql.DB) {}
	inB := func(t *testing.T, dsn string, _ *sql.DB) { inSchemas(t, dsn, "b") }
	for name, c := range map[string]struct {
		cause func(t *testing.T, dsn string, db *sql.DB)
		table string
		want  []string
	}{
		"nothing":          {nothing, "onerun_leases", nil},
		"a new snapshot":   {func(t *testing.T, _ string, db *sql.DB) { inTransaction(t, db) }, "onerun_leases", nil},
		"no snapshot":      {func(t *testing.T, _ string, db *sql.DB) { older(t, db) }, "onerun_leases", nil},
		"an old snapshot":  {func(t *testing.T, _ string, db *sql.DB) { older(t, db); inTransaction(t, db) }, "onerun_leases", []string{"open for 6m"}},
		"nothing prepared": {func(t *testing.T, _ string, db *sql.DB) { ages(t, db) }, "onerun_leases", nil},
		"a prepared transaction": {func(t *testing.T, _ string, db *sql.DB) {
			ages(t, db)
			exec(t, db, `BEGIN; CREATE TABLE x (); PREPARE TRANSACTION 'x'`)
			t.Cleanup(func() { _, _ = db.Exec(`ROLLBACK PREPARED 'x'`) })
		}, "onerun_leases", []string{"200000 transactions behind"}},
		"dead rows": {func(t *testing.T, _ string, db *sql.DB) {
			exec(t, db, `INSERT INTO onerun_leases (key, state, ends, version, forget_on)
				SELECT i::text::bytea, 'free', now(), 1, now() FROM generate_series(1, 10100) i`)
			exec(t, db, `DELETE FROM onerun_leases`)
		}, "onerun_leases", []string{"dead row versions"}},
		"several schemas":               {inB, "onerun_leases", []string{"2 schemas have a table onerun_leases"}},
		"several schemas, one is named": {inB, "public.onerun_leases", nil},
		"an unlogged table": {
			func(t *testing.T, _ string, db *sql.DB) { exec(t, db, `ALTER TABLE onerun_leases SET UNLOGGED`) },
			"public.onerun_leases",
			[]string{"public.onerun_leases is unlogged"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dsn := server.Database(t)
			_, db := migrated(t, dsn)
			c.cause(t, dsn, db)
			db.SetMaxIdleConns(0) // the statistics of a session are written when it ends
			sqltest.RequireWarnings(t, postgres.New(open(t, dsn+shadow), postgres.WithTable(c.table)), c.want...)
		})
	}
}
