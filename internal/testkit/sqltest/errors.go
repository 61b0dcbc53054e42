package sqltest

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Refusal is a Locker whose store cannot be asked, and why. Its error says what to do.
type Refusal struct {
	open func(t *testing.T) Locker
	kind driver.StoreErrorKind
	says []string
}

// Because returns a Refusal of the Locker.
func Because(kind driver.StoreErrorKind, open func(t *testing.T) Locker, says ...string) Refusal {
	return Refusal{open, kind, says}
}

// Refuses asserts that claims are refused.
func Refuses(t *testing.T, refusals map[string]Refusal) {
	t.Helper()
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			l := r.open(t)
			c := Claim("key", Long)
			c.Label = strings.Repeat("x", 64<<10) // finds a disk full
			patience := 20 * time.Second
			if r.kind == driver.KindPoolExhausted {
				patience = time.Second // it is the deadline that says so
			}
			_, err := l.TryAcquire(Within(t, patience), c)
			RequireKind(t, r.kind, err, r.says...)
		})
	}
}

func errorsHaveAKind(t *testing.T, s *Store) {
	s.Migrated(t)
	on := func(open func(t *testing.T) *sql.DB) func(t *testing.T) Locker {
		return func(t *testing.T) Locker { return s.New(open(t)) }
	}
	Refuses(t, map[string]Refusal{
		"the pool is exhausted": {on(func(t *testing.T) *sql.DB {
			db := s.Client(t)
			db.SetMaxOpenConns(1)
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			return db
		}), driver.KindPoolExhausted, nil},
		"the pool is closed": {on(func(t *testing.T) *sql.DB {
			db := s.Client(t)
			require.NoError(t, db.Close())
			return db
		}), driver.KindClosed, []string{"closed"}},
		"there is no table": {on(func(t *testing.T) *sql.DB {
			db := s.Client(t)
			Exec(t, db, `ALTER TABLE onerun_leases RENAME TO renamed`)
			t.Cleanup(func() { _, _ = db.Exec(`ALTER TABLE renamed RENAME TO onerun_leases`) })
			return db
		}), driver.KindSettings, []string{"call Migrate"}},
	})
}

// RequireWarnings asserts what a Locker warns of. A text is a part of a warning.
func RequireWarnings(t testing.TB, l Locker, want ...string) {
	t.Helper()
	var got []error
	as := func() bool {
		got = l.Warnings(t.Context())
		for i, err := range got {
			if i >= len(want) || !strings.Contains(err.Error(), want[i]) {
				return false
			}
		}
		return len(got) == len(want)
	}
	for deadline := time.Now().Add(20 * time.Second); !as(); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), got)
	}
}
