// Package leasestest runs the test of an example on each store of package leases.
package leasestest

import (
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver of mysqltest

	"github.com/seed-1795987d/onerun/examples/internal/leases"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// Embedded are the stores that need no server, and Servers those that do.
var (
	Embedded = []string{"redis", "sqlite"}
	Servers  = []string{"mysql", "postgres"}
)

// dsn has a data source name for each test. The file of SQLite need not survive a power cut.
var dsn = map[string]func(t *testing.T) string{
	"redis": func(*testing.T) string { return "" },
	"sqlite": func(t *testing.T) string {
		return filepath.Join(t.TempDir(), "leases.db") + "?_pragma=busy_timeout(5000)&_pragma=synchronous(0)"
	},
	"mysql":    func(t *testing.T) string { leftout.ServersIfShort(t); return mysqltest.Start(t).Database(t) },
	"postgres": func(t *testing.T) string { leftout.ServersIfShort(t); return postgrestest.Start(t).DSN() },
}

// On runs the test on the stores; without -tags sql, on Redis alone.
func On(t *testing.T, stores []string, test func(t *testing.T, store *leases.Store)) {
	for _, backend := range stores {
		if backend == "redis" || leases.SQL {
			t.Run(backend, func(t *testing.T) {
				t.Parallel() // they wait for leases to end most of the time
				test(t, leases.Open(backend, dsn[backend](t)))
			})
		}
	}
}
