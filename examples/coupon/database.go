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

// read registers the fence and returns how many coupons are left. It returns errStale if a newer
// holder has registered its fence. If the user cannot have a coupon, read returns errSoldOut or
// errHasOne.
func (db database) read(ctx context.Context, user string, fence uint64) (remaining int, err error) {
	// A SELECT is not enough. An older holder could then still write between this read and our
	// write, and our write would undo that sale. Without a guard, all fences are 0 and nothing is
	// refused.
	err = db.QueryRowContext(ctx, `UPDATE stock SET fence = ? WHERE coupon = ? AND fence <= ?
		RETURNING remaining`, fence, coupon, fence).Scan(&remaining)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errStale
	}
	if err != nil {
		return 0, fmt.Errorf("read the stock: %w", err)
	}
	// A second statement reads the claims, after the first has registered the fence. One statement
	// would do on SQLite, but not on PostgreSQL. An UPDATE there that has waited for a row lock
	// returns the new stock, but a subquery in it still sees the claims from before the wait.
	var claimed bool
	err = db.QueryRowContext(ctx, `SELECT EXISTS
		(SELECT 1 FROM claims WHERE coupon = ? AND user = ?)`, coupon, user).Scan(&claimed)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the claims: %w", err)
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

// write writes the new stock and the user's claim, both or neither. It returns errStale if the
// fence that read registered is no longer the stock's. It then writes a row to refused instead.
func (db database) write(ctx context.Context, s sale) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("write the stock: %w", err)
	}
	defer tx.Rollback() // does nothing after Commit

	// The database refuses a stale holder here. The fence must be equal, not just high enough. The
	// database therefore also refuses a write whose fence no read has registered. A holder keeps
	// its fence, so it can read and write several times.
	result, err := tx.ExecContext(ctx, `UPDATE stock SET remaining = ?
		WHERE coupon = ? AND fence = ?`, s.remaining, coupon, s.fence)
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

// stock returns how many coupons are left, and the stock's fence. It is for display: nothing is
// written because of what it returns, so it registers no fence.
func (db database) stock(ctx context.Context) (remaining int, fence uint64, err error) {
	err = db.QueryRowContext(ctx, `SELECT remaining, fence FROM stock WHERE coupon = ?`, coupon).Scan(&remaining, &fence)
	if err != nil {
		return 0, 0, fmt.Errorf("read the stock: %w", err)
	}
	return remaining, fence, nil
}
