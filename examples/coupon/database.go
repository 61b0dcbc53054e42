package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

var (
	errSoldOut = errors.New("no coupon is left")
	errHasOne  = errors.New("the user has a coupon already")
	errStale   = errors.New("the database refused a stale fence")
)

// database is the shop's tables, see schema.sql.
type database struct{ *sql.DB }

// read returns how many coupons are left for the user to have one. It returns errSoldOut or errHasOne if
// the user cannot have one.
func (db database) read(ctx context.Context, user string) (remaining int, err error) {
	var claimed bool
	err = db.QueryRowContext(ctx, `SELECT remaining,
			EXISTS (SELECT 1 FROM claims WHERE coupon = stock.coupon AND user = ?)
		FROM stock WHERE coupon = ?`, user, coupon).Scan(&remaining, &claimed)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the stock: %w", err)
	case claimed:
		return 0, errHasOne
	case remaining <= 0:
		return 0, errSoldOut
	}
	return remaining, nil
}

// A sale is what a server writes when it gives away a coupon.
type sale struct {
	order
	server    string
	remaining int // what is left then
	fence     uint64
}

// write writes the new stock and the user's claim, both or neither. It returns errStale, and leaves a note of
// that instead, if somebody with a higher fence has written before.
func (db database) write(ctx context.Context, s sale) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("write the stock: %w", err)
	}
	defer tx.Rollback() // does nothing after Commit

	// This is where a stale holder is refused. Without a guard the fence is 0, and nothing is.
	result, err := tx.ExecContext(ctx, `UPDATE stock SET remaining = ?, fence = ? WHERE coupon = ? AND fence <= ?`,
		s.remaining, s.fence, coupon, s.fence)
	if err != nil {
		return fmt.Errorf("write the stock: %w", err)
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("write the stock: %w", err)
	}
	if changed == 0 {
		err = errStale
		_, noted := tx.ExecContext(ctx, `INSERT INTO refused (coupon, user, server, fence, stock_fence)
			SELECT coupon, ?, ?, ?, fence FROM stock WHERE coupon = ?`, s.user, s.server, s.fence, coupon)
		return errors.Join(err, noted, tx.Commit())
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO claims (coupon, user, size, server, fence) VALUES (?, ?, ?, ?, ?)`,
		coupon, s.user, s.size, s.server, s.fence)
	if err != nil {
		return fmt.Errorf("write the claim: %w", err)
	}
	return tx.Commit()
}

// stock returns what is left, and the fence of the last who wrote it.
func (db database) stock(ctx context.Context) (remaining int, fence uint64, err error) {
	err = db.QueryRowContext(ctx, `SELECT remaining, fence FROM stock WHERE coupon = ?`, coupon).Scan(&remaining, &fence)
	if err != nil {
		return 0, 0, fmt.Errorf("read the stock: %w", err)
	}
	return remaining, fence, nil
}
