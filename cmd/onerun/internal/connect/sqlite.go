package connect

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed-1795987d/onerun/backend/sqlite"
)

// sqliteScheme begins what names a file of SQLite.
const sqliteScheme = "sqlite:"

func isSQLite(address string) bool { return strings.HasPrefix(address, sqliteScheme) }

var errSQLiteURL = errors.New("it names no file of SQLite: use sqlite:FILE, or sqlite:FILE?table=NAME")

// openSQLite sets the database and the Locker of s. The parameter "table" is the table of the
// leases.
func (s *Servers) openSQLite(c Config) error {
	switch {
	case len(c.URLs) > 1:
		return errors.New("--redis: a file of SQLite must be the only store: leases are in one")
	case c.Backend != "" && c.Backend != Single:
		return errors.New("--backend: " + c.Backend + " is a backend on Redis, and the store is a file of SQLite")
	case c.Plain != "":
		return errors.New("--plain: has no effect on SQLite: no other library has its locks in our table")
	case !c.TLS.isZero():
		return errors.New("--tls-ca, --tls-cert and --tls-key have no effect on SQLite: it is a file")
	}
	path, query, found := strings.Cut(strings.TrimPrefix(c.URLs[0], sqliteScheme), "?")
	values, err := url.ParseQuery(query)
	table := values.Get("table")
	if err != nil || path == "" || found && (table == "" || len(values) > 1) {
		return badURL(0, 1, errSQLiteURL)
	}
	var opts []sqlite.Option
	if table != "" {
		opts = append(opts, sqlite.WithTable(table))
	}
	if s.DB, err = sql.Open("sqlite", path); err != nil {
		return badURL(0, 1, errSQLiteURL)
	}
	s.DB.SetMaxOpenConns(connections)
	s.Table = sqlite.New(s.DB, opts...)
	s.Locker = s.Table
	return s.Table.Describe().Err
}
