package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" for PostgreSQL
	_ "modernc.org/sqlite"             // the driver "sqlite", in pure Go
)

// errStale says that a newer holder has come, so this run must stop.
var errStale = errors.New("a newer holder has come")

const schema = `CREATE TABLE IF NOT EXISTS stock (
	item      VARCHAR(100) PRIMARY KEY,
	remaining INTEGER NOT NULL,
	fence     BIGINT NOT NULL DEFAULT 0
)`

const filled = `INSERT INTO stock (item, remaining) VALUES ('spring', 3), ('autumn', 3) ON CONFLICT DO NOTHING`

// A stock counts the items that are left. From the moment that read has returned, nothing is
// written under a lower fence. It must be the first read that the work relies on. If only write
// compared the fence, that of the old holder could land between the read and the write of the new
// one.
type stock interface {
	// read returns what remains of the item, and registers the fence.
	read(ctx context.Context, item string, fence uint64) (remaining int, err error)
	// write sets what remains of the item, if nobody has read it under a higher fence.
	write(ctx context.Context, item string, remaining int, fence uint64) error
	Close() error
}

// openStock opens a file of SQLite, or PostgreSQL with a postgres:// URL, or MySQL with a data
// source name such as root@tcp(127.0.0.1:3306)/shop. If the table is new, three of each item are in
// it.
func openStock(ctx context.Context, dsn string) (stock, error) {
	switch {
	case strings.HasPrefix(dsn, "postgres://"):
		db, err := filledStock(ctx, "pgx", dsn, filled)
		return sqlStock{db}, err
	case strings.Contains(dsn, ")/"):
		return openMySQL(ctx, dsn)
	}
	dsn = "file:" + dsn + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	db, err := filledStock(ctx, "sqlite", dsn, filled)
	return sqlStock{db}, err
}

// filledStock opens a database, and makes the table.
func filledStock(ctx context.Context, driver, dsn, filled string) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{schema, filled} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(fmt.Errorf("create the stock: %w", err), db.Close())
		}
	}
	return db, nil
}

// A sqlStock is in SQLite or PostgreSQL, which take the same statements.
type sqlStock struct{ *sql.DB }

func (s sqlStock) read(ctx context.Context, item string, fence uint64) (remaining int, err error) {
	err = s.QueryRowContext(ctx,
		`UPDATE stock SET fence = $1 WHERE item = $2 AND fence <= $1 RETURNING remaining`,
		int64(fence), item).Scan(&remaining)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errStale
	}
	return remaining, err
}

func (s sqlStock) write(ctx context.Context, item string, remaining int, fence uint64) error {
	return matched(s.ExecContext(ctx,
		`UPDATE stock SET remaining = $1 WHERE item = $2 AND fence = $3`, remaining, item, int64(fence)))
}

// matched returns errStale if a statement has found no row.
func matched(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		return errStale
	}
	return err
}
