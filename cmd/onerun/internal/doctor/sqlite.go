package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
)

const sqliteName = "sqlite"

// reachSQLite checks whether the file can be read, the version and the journal mode.
func (s *Server) reachSQLite(ctx context.Context, of *connect.Servers) bool {
	var version, mode string
	start := time.Now()
	err := of.DB.QueryRowContext(ctx, `SELECT sqlite_version(), journal_mode FROM pragma_journal_mode`).Scan(&version, &mode)
	if err != nil {
		// a claim fails as well, and its error has a hint
		s.add("reach", Problem, "%s", whyUnreachable(cmp.Or(tryLease(ctx, of.Locker, scratch+"-"+rand.Text()), err)))
		return false
	}
	s.add("reach", OK, "answers in %v", time.Since(start).Round(time.Microsecond))
	s.add("version", OK, "SQLite %s", version)
	if mode == "wal" {
		s.add("journal", OK, "WAL")
	} else {
		s.add("journal", Problem, `%s: "onerun migrate" turns on WAL`, mode)
	}
	return true
}

// onSQLite says what the backend promises on a file.
func onSQLite(s *Server) Backend {
	return s.onTable(sqliteName, []string{
		"one holder of a key at a time, among the processes of this host",
		"fences that grow, which a transaction can check",
	}, "no WithFair", "a transaction that writes delays all claims and renewals until it ends")
}
