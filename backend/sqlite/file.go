package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A file is the database as the first call found it.
type file struct {
	path string // "" in memory
	info os.FileInfo
}

// errReplaced means that the connections may have different files open.
var errReplaced = errors.New("the file was deleted or replaced while it was in use: " +
	"stop all processes that use it, and start them again")

// Prepare implements sqlstore.Dialect. It finds the file in the first call. Later, it checks that
// the path still leads to that file: other processes would open another one.
func (d *dialect) Prepare(ctx context.Context) error {
	f := d.file.Load()
	if f == nil {
		found, err := d.find(ctx)
		if err != nil {
			return err
		}
		d.file.CompareAndSwap(nil, found)
		f = d.file.Load()
	}
	if f.path == "" {
		return nil
	}
	if now, err := os.Stat(f.path); err != nil || !os.SameFile(f.info, now) {
		return errReplaced
	}
	return nil
}

func (d *dialect) find(ctx context.Context) (*file, error) {
	path, err := d.path(ctx)
	if err != nil || path == "" {
		return &file{}, err
	}
	var mode string
	err = whileLocked(ctx, func() error {
		return d.db.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode)
	})
	if err == nil {
		err = checkMode(mode)
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	return &file{path, info}, err
}

// path returns the path of the file, or "" if the database is in memory. Then each connection of a
// pool would have a database of its own.
func (d *dialect) path(ctx context.Context) (path string, err error) {
	err = whileLocked(ctx, func() error {
		return d.db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path)
	})
	if path != "" {
		d.named.Store(&path)
	}
	if err == nil && path == "" && d.db.Stats().MaxOpenConnections != 1 {
		err = &driver.SettingError{
			Setting: "db", Reason: "is in memory, where each connection can have a database of its own: " +
				"use a file, or SetMaxOpenConns(1)",
		}
	}
	return path, err
}

// checkMode refuses other journal modes than WAL: in them, readers keep out the writer.
func checkMode(mode string) error {
	if mode == "wal" {
		return nil
	}
	return &driver.SettingError{Setting: "db", Reason: fmt.Sprintf(
		"has the journal mode %q, and leases need WAL: call Migrate, or PRAGMA journal_mode = WAL "+
			"(not every file system supports it)", mode)}
}
