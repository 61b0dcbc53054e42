package sqlite

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Warner = (*Locker)(nil)

// syncFull is the value of PRAGMA synchronous by which each commit waits for the disk.
const syncFull = 2

// Warnings implements driver.Warner.
func (l *Locker) Warnings(ctx context.Context) (warnings []error) {
	warnings, _ = sqlstore.Ask(ctx, l.locker, driver.OpInspect, "", func(ctx context.Context) (all []error, err error) {
		d := l.dialect
		path := d.file.Load().path
		if path == "" {
			return nil, nil
		}
		var synchronous int
		if err := d.db.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&synchronous); err != nil {
			return nil, err
		}
		if synchronous < syncFull {
			all = append(all, errors.New("sqlite: synchronous is not FULL, so a crash of the host can lose done markers and records"))
		}
		if system := networkFileSystem(path); system != "" {
			all = append(all, errors.New("sqlite: the file is on "+system+", whose locks may not exclude processes of other hosts"))
		}
		return all, nil
	})
	return warnings
}
