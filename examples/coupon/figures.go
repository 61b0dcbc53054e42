package main

import (
	"context"
	"fmt"

	"github.com/seed-1795987d/onerun/examples/internal/stage"
)

// table reads back from the database what has been claimed.
func (s *shop) table(ctx context.Context) (*stage.Table, error) {
	var claimed, left, twice, refused int
	var by string
	err := s.db.QueryRowContext(ctx, `SELECT
			(SELECT count(*) FROM claims),
			(SELECT remaining FROM stock),
			(SELECT count(*) FROM (SELECT user FROM claims GROUP BY user HAVING count(*) > 1)),
			(SELECT count(*) FROM refused),
			(SELECT coalesce(group_concat(DISTINCT server), 'nobody') FROM refused)`).
		Scan(&claimed, &left, &twice, &refused, &by)
	if err != nil {
		return nil, fmt.Errorf("read the figures: %w", err)
	}
	var table stage.Table
	table.Exactly("coupons claimed", coupons, claimed, oversold(claimed))
	table.Exactly("coupons claimed or in stock", coupons, claimed+left, fmt.Sprintf("%d in stock", left))
	table.Exactly("users who have more than one", 0, twice, "")
	if s.froze {
		table.AtLeast("stale writes refused by the fence", 1, refused, "by "+by)
	}
	return &table, nil
}

func oversold(claimed int) string {
	if claimed <= coupons {
		return ""
	}
	return fmt.Sprintf("oversold by %d", claimed-coupons)
}
