package connect

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed-1795987d/onerun/backend/sqlite"
)

// sqliteScheme begins what names a file of SQLite.
const sqliteScheme = "sqlite:"

func isSQLite(address string) bool { return strings.HasPrefix(address, sqliteScheme) }

const useSQLite = ": use sqlite:FILE, or sqlite:FILE?table=NAME"

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
	path, table, err := parseSQLite(c.URLs[0])
	if err != nil {
		return badURL(0, 1, err)
	}
	if path, err = filepath.Abs(path); err == nil {
		err = checkFile(path, c.Create)
	}
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	s.Address, s.TableName = path, cmp.Or(table, defaultTable)
	opts := []sqlite.Option{sqlite.WithAddr(s.Address)}
	if table != "" {
		opts = append(opts, sqlite.WithTable(table))
	}
	if s.DB, err = sql.Open("sqlite", path); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	s.DB.SetMaxOpenConns(connections)
	s.Table = sqlite.New(s.DB, opts...)
	s.Locker = s.Table
	return s.Table.Describe().Err
}

// parseSQLite returns the path and the table of sqlite:FILE?table=NAME.
func parseSQLite(address string) (path, table string, err error) {
	path, query, found := strings.Cut(strings.TrimPrefix(address, sqliteScheme), "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", "", errors.New("its parameters cannot be read" + useSQLite)
	}
	for name := range values {
		if name != "table" {
			return "", "", fmt.Errorf("it has the parameter %q, and table is the only one%s", name, useSQLite)
		}
	}
	table = values.Get("table")
	switch {
	case found && table == "":
		return "", "", errors.New("it names no table" + useSQLite)
	case path == "":
		return "", "", errors.New("it names no file of SQLite" + useSQLite)
	case path == ":memory:":
		return "", "", errors.New("it names a database in memory, which ends with the command" + useSQLite)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return "", "", errors.New("after // it would name a host, and a file has none: use sqlite:FILE, or sqlite:///PATH from the root")
	}
	return path, table, nil
}

// checkFile refuses a path at which SQLite would create a file, unless create is set, or at which
// it could not.
func checkFile(path string, create bool) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a folder: name a file", path)
	case err == nil && info.Size() > 0, err == nil && create:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err // it has the path
	}
	folder := filepath.Dir(path)
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("the folder %s does not exist", folder)
	}
	if create {
		return nil
	}
	return fmt.Errorf("%s does not exist, or is empty: \"onerun migrate\" creates it", path)
}
