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
	item      TEXT PRIMARY KEY,
	remaining INTEGER NOT NULL,
	fence     BIGINT NOT NULL DEFAULT 0
)`

const filled = `INSERT INTO stock (item, remaining) VALUES ('spring', 3), ('autumn', 3) ON CONFLICT DO NOTHING`

// A stock counts the items that are left. The statements work on SQLite and PostgreSQL.
//
// MySQL needs two changes. It has no UPDATE … RETURNING, so read with an UPDATE and a SELECT in one
// transaction. And it counts the rows that changed, not the rows that matched, so a holder that
// reads twice looks stale: add clientFoundRows=true to the data source name of go-sql-driver/mysql.
type stock struct{ *sql.DB }

// openStock opens a file of SQLite or, with a postgres:// URL, PostgreSQL. If the table is new,
// three of each item are in it.
func openStock(ctx context.Context, dsn string) (stock, error) {
	driver := "pgx"
	if !strings.HasPrefix(dsn, "postgres://") {
		driver, dsn = "sqlite", "file:"+dsn+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return stock{}, err
	}
	for _, statement := range []string{schema, filled} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return stock{}, errors.Join(fmt.Errorf("create the stock: %w", err), db.Close())
		}
	}
	return stock{db}, nil
}

// read returns what remains of the item, and registers the fence: from then on, nothing is written
// under a lower one. It must be the first read that the work relies on. If only the write compared
// the fence, that of the old holder could land between the read and the write of the new one.
func (s stock) read(ctx context.Context, item string, fence uint64) (remaining int, err error) {
	err = s.QueryRowContext(ctx,
		`UPDATE stock SET fence = $1 WHERE item = $2 AND fence <= $1 RETURNING remaining`,
		int64(fence), item).Scan(&remaining)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errStale
	}
	return remaining, err
}

// write sets what remains of the item, if nobody has read it under a higher fence.
func (s stock) write(ctx context.Context, item string, remaining int, fence uint64) error {
	result, err := s.ExecContext(ctx,
		`UPDATE stock SET remaining = $1 WHERE item = $2 AND fence = $3`, remaining, item, int64(fence))
	if err != nil {
		return err
	}
	matched, err := result.RowsAffected()
	if err == nil && matched == 0 {
		return errStale
	}
	return err
}
