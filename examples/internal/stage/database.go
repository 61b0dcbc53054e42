package stage

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go
)

// createDatabase makes a SQLite database in the file, which must not exist.
func createDatabase(file, schema string) (*sql.DB, error) {
	switch _, err := os.Stat(file); {
	case err == nil:
		return nil, fmt.Errorf("-db %s: the file exists already; name a new one", file)
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("-db %s: %w", file, err)
	}
	db, err := OpenDatabase(file)
	if err != nil {
		return nil, err
	}
	// A write-ahead log lets processes read while another one writes.
	if _, err := db.Exec("PRAGMA journal_mode = WAL;" + schema); err != nil {
		return nil, errors.Join(fmt.Errorf("-db %s: create the database: %w", file, err), db.Close())
	}
	return db, nil
}

// OpenDatabase opens the SQLite database in the file, for this process beside others.
func OpenDatabase(file string) (*sql.DB, error) {
	settings := url.Values{
		// SQLite has one writer at a time: wait for it, and take the turn when a transaction
		// begins, as one that reads first could not have it later.
		// an example need not survive a power cut
		"_pragma": {"busy_timeout(10000)", "synchronous(OFF)"},
		"_txlock": {"immediate"},
	}
	db, err := sql.Open("sqlite", "file:"+url.PathEscape(file)+"?"+settings.Encode())
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", file, err)
	}
	db.SetMaxOpenConns(1) // queueing here costs less than in SQLite, which sleeps and tries again
	return db, nil
}
