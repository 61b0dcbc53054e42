package main

import (
	"context"
	"database/sql"

	"github.com/go-sql-driver/mysql"
)

// filledMySQL fills the table. A row that exists stays as it is.
const filledMySQL = `INSERT INTO stock (item, remaining) VALUES ('spring', 3), ('autumn', 3)
	ON DUPLICATE KEY UPDATE item = item`

// A mySQLStock is in MySQL or MariaDB. MySQL differs from the others in two ways: see read, and
// openMySQL.
type mySQLStock struct{ *sql.DB }

// openMySQL opens a database of MySQL or MariaDB. Without ClientFoundRows, the server counts the
// rows that changed, and not those that matched: a holder that reads twice would look stale.
func openMySQL(ctx context.Context, dsn string) (stock, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.ClientFoundRows = true
	db, err := filledStock(ctx, "mysql", config.FormatDSN(), filledMySQL)
	return mySQLStock{db}, err
}

// read needs a transaction, because MySQL has no UPDATE … RETURNING. The lock of the UPDATE keeps
// other holders away until the commit.
func (s mySQLStock) read(ctx context.Context, item string, fence uint64) (remaining int, err error) {
	tx, err := s.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	err = matched(tx.ExecContext(ctx, `UPDATE stock SET fence = ? WHERE item = ? AND fence <= ?`, fence, item, fence))
	if err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT remaining FROM stock WHERE item = ?`, item).Scan(&remaining)
	if err != nil {
		return 0, err
	}
	return remaining, tx.Commit() // the work goes on after this
}

func (s mySQLStock) write(ctx context.Context, item string, remaining int, fence uint64) error {
	return matched(s.ExecContext(ctx,
		`UPDATE stock SET remaining = ? WHERE item = ? AND fence = ?`, remaining, item, fence))
}
