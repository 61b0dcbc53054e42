package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

// table reads back from the database what has been claimed.
func (s *shop) table(ctx context.Context) (*stage.Table, error) {
	b, err := s.db.books(ctx)
	if err != nil {
		return nil, err
	}
	claimed := len(b.claims)
	var table stage.Table
	table.Exactly("coupons claimed", coupons, claimed, oversold(claimed))
	table.Exactly("coupons claimed or in stock", coupons, claimed+b.stock.Remaining, fmt.Sprintf("%d in stock", b.stock.Remaining))
	table.Exactly("users who have more than one", 0, b.greedy(), "")
	if s.froze {
		table.AtLeast("stale writes refused by the fence", 1, len(b.refused), "by "+b.stale())
	}
	return &table, nil
}

// greedy returns how many users have more than one coupon.
func (b books) greedy() (users int) {
	has := map[string]int{}
	for _, c := range b.claims {
		if has[c.User]++; has[c.User] == 2 {
			users++
		}
	}
	return users
}

// stale returns the servers whose writes were refused.
func (b books) stale() string {
	var servers []string
	for _, r := range b.refused {
		if !slices.Contains(servers, r.Server) {
			servers = append(servers, r.Server)
		}
	}
	return cmp.Or(strings.Join(servers, ","), "nobody")
}

func oversold(claimed int) string {
	if claimed <= coupons {
		return ""
	}
	return fmt.Sprintf("oversold by %d", claimed-coupons)
}
