package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

var (
	// errDrawn says that the round was drawn before.
	errDrawn = errors.New("the database says that it is drawn")
	// errStale says that another replica has begun to draw, under a higher fence.
	errStale = errors.New("the database refused a stale fence")
)

// database is the lottery's tables, see schema.sql.
type database struct{ *sql.DB }

// begin begins to draw the round, unless it is drawn. From here on, nothing is written under a
// lower fence.
func (db database) begin(ctx context.Context, round int, fence uint64) error {
	const isDrawn = `EXISTS (SELECT 1 FROM draws WHERE round = ?)`
	err := db.write(ctx, `UPDATE rounds SET fence = ? WHERE round = ? AND fence <= ? AND NOT `+isDrawn, fence, round, fence, round)
	if !errors.Is(err, errStale) {
		return err
	}
	var drawn bool // or is it the fence?
	if err := db.QueryRowContext(ctx, `SELECT `+isDrawn, round).Scan(&drawn); err != nil {
		return fmt.Errorf("read round %d: %w", round, err)
	}
	if drawn {
		return errDrawn
	}
	return err
}

// pick draws n of the entrants.
func (db database) pick(ctx context.Context, n int) (entrants []int, err error) {
	rows, err := db.QueryContext(ctx, `SELECT id FROM entrants ORDER BY random() LIMIT ?`, n)
	if err != nil {
		return nil, fmt.Errorf("draw entrants: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("draw entrants: %w", err)
		}
		entrants = append(entrants, id)
	}
	return entrants, rows.Err()
}

// addWinner writes a winner, who does not count before finish.
func (db database) addWinner(ctx context.Context, round, entrant int, replica string, fence uint64) error {
	return db.write(ctx, `INSERT INTO winners (round, entrant, replica, fence)
		SELECT round, ?, ?, ? FROM rounds WHERE round = ? AND fence = ?`, entrant, replica, fence, round, fence)
}

// finish makes what the replica wrote under the fence the winners of the round.
func (db database) finish(ctx context.Context, round int, replica string, fence uint64) error {
	return db.write(ctx, `INSERT INTO draws (round, replica, fence)
		SELECT round, ?, ? FROM rounds WHERE round = ? AND fence = ?`, replica, fence, round, fence)
}

// write runs a statement that changes one row, or none if the fence in it is stale.
func (db database) write(ctx context.Context, statement string, args ...any) error {
	result, err := db.ExecContext(ctx, statement, args...)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if changed == 0 {
		return errStale
	}
	return nil
}
