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

// stores have a data source name for each test. The file of SQLite need not survive a power cut.
var stores = map[string]func(t *testing.T) (dsn string){
	"redis": func(*testing.T) string { return "" },
	"sqlite": func(t *testing.T) string {
		return filepath.Join(t.TempDir(), "leases.db") + "?_pragma=busy_timeout(5000)&_pragma=synchronous(0)"
	},
	"mysql":    func(t *testing.T) string { leftout.ServersIfShort(t); return mysqltest.Start(t).Database(t) },
	"postgres": func(t *testing.T) string { leftout.ServersIfShort(t); return postgrestest.Start(t).DSN() },
}

// OnEach runs the test on each store; without -tags sql, on Redis alone.
func OnEach(t *testing.T, test func(t *testing.T, store *leases.Store)) {
	for backend, dsn := range stores {
		if backend == "redis" || leases.SQL {
			t.Run(backend, func(t *testing.T) { test(t, leases.Open(backend, dsn(t))) })
		}
	}
}
