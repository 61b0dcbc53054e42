// Package leases opens the store that has the leases of an example. Its functions panic if the
// store cannot be opened.
package leases

import (
	"errors"
	"flag"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/examples/internal/embedded"
	"github.com/seed-1795987d/onerun/guard"
)

// A Store is one that several processes share. The caller must call Close after all Guards.
type Store struct {
	backend, dsn string
	closers      []func() error // of what is open, in the order of opening
}

// Open opens a store: "redis", which is inside this process; or, with -tags sql, "sqlite", "mysql"
// or "postgres" with a data source name. That of SQLite is a temporary file if it is empty.
func Open(backend, dsn string) *Store {
	s := &Store{backend: backend, dsn: dsn}
	if backend == "redis" {
		var stop func()
		s.dsn, stop = embedded.Redis()
		s.closers = append(s.closers, func() error { stop(); return nil })
	}
	return s
}

// Flags defines the flags -backend and -db, and returns a function that opens what they say.
func Flags() func() *Store {
	backend := flag.String("backend", "redis", "where the leases are: redis; with -tags sql also sqlite, mysql or postgres")
	dsn := flag.String("db", "", "the data source name of the backend")
	return func() *Store { return Open(*backend, *dsn) }
}

// Locker returns a Locker with connections of its own, as a process has.
func (s *Store) Locker() guard.Locker {
	if s.backend != "redis" {
		return s.sqlLocker()
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.dsn})
	s.closers = append(s.closers, rdb.Close)
	return single.New(rdb)
}

// Close closes what was opened, the newest first.
func (s *Store) Close() {
	var failed error
	for i := len(s.closers) - 1; i >= 0; i-- {
		failed = errors.Join(failed, s.closers[i]())
	}
	if failed != nil {
		panic(failed)
	}
}
