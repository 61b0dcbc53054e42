package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-1795987d/onerun/examples/internal/stage"
)

// table reads back from the database what has come of the rounds.
func (d *director) table(ctx context.Context) (*stage.Table, error) {
	rows, err := d.run.DB.QueryContext(ctx, `SELECT r.round,
			(SELECT count(*) FROM draws d WHERE d.round = r.round),
			(SELECT coalesce(group_concat(replica), 'nobody') FROM draws d WHERE d.round = r.round),
			(SELECT count(*) FROM winners w JOIN draws d USING (round, replica, fence) WHERE w.round = r.round)
		FROM rounds r ORDER BY r.round`)
	if err != nil {
		return nil, fmt.Errorf("read the figures: %w", err)
	}
	defer rows.Close()

	var table stage.Table
	for rows.Next() {
		var round, draws, winners int
		var by string
		if err := rows.Scan(&round, &draws, &by, &winners); err != nil {
			return nil, fmt.Errorf("read the figures: %w", err)
		}
		table.Exactly(fmt.Sprintf("draws of round %d", round), 1, draws, "by "+strings.ReplaceAll(by, ",replica ", ", "))
		table.Exactly(fmt.Sprintf("winners in round %d", round), winnersPerRound, winners, surplus(winners))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the figures: %w", err)
	}
	if d.kill {
		return &table, d.addCutShort(ctx, &table)
	}
	return &table, nil
}

func surplus(winners int) string {
	if winners <= winnersPerRound {
		return ""
	}
	return fmt.Sprintf("%d too many", winners-winnersPerRound)
}

// addCutShort adds what the replicas that were killed have left behind.
func (d *director) addCutShort(ctx context.Context, table *stage.Table) error {
	var draws, winners int
	err := d.run.DB.QueryRowContext(ctx, `SELECT count(DISTINCT w.round || w.replica), count(*)
		FROM winners w LEFT JOIN draws d USING (round, replica, fence) WHERE d.round IS NULL`).Scan(&draws, &winners)
	if err != nil {
		return fmt.Errorf("read the figures: %w", err)
	}
	table.AtLeast("draws cut short by a kill", rounds, draws, fmt.Sprintf("their %d winners do not count", winners))
	return nil
}
