//go:build sql

package leases

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/examples/internal/embedded"
	"github.com/seed-1795987d/onerun/guard"
)

// SQL is whether the program has the drivers of databases. They take a minute to compile.
const SQL = true

// sqlLocker returns a Locker on a database, and creates its table if it does not exist.
func (s *Store) sqlLocker() guard.Locker {
	var l interface {
		guard.Locker
		Migrate(ctx context.Context) error
	}
	switch s.backend {
	case "sqlite":
		if s.dsn == "" { // the file is new
			dir := embedded.Must(os.MkdirTemp("", "onerun-leases-*"))
			s.closers = append(s.closers, func() error { return os.RemoveAll(dir) })
			s.dsn = filepath.Join(dir, "leases.db") + "?_pragma=busy_timeout(5000)"
		}
		l = sqlite.New(s.database("sqlite"))
	case "mysql":
		l = mysql.New(s.database("mysql"))
	case "postgres":
		l = postgres.New(s.database("pgx"))
	default:
		panic("-backend must be redis, sqlite, mysql or postgres, not " + s.backend)
	}
	if err := l.Migrate(context.Background()); err != nil {
		panic(err)
	}
	return l
}

func (s *Store) database(driver string) *sql.DB {
	db := embedded.Must(sql.Open(driver, s.dsn))
	db.SetMaxOpenConns(8)
	s.closers = append(s.closers, db.Close)
	return db
}
