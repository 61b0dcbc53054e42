//go:build !sql

package leases

import "github.com/seed-1795987d/onerun/guard"

// SQL is whether the program has the drivers of databases. They take a minute to compile.
const SQL = false

func (s *Store) sqlLocker() guard.Locker {
	panic("-backend " + s.backend + " needs go run -tags sql")
}
