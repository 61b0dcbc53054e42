package postgres

import (
	"context"
	"slices"
	"sync"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.BatchRenewer = (*Locker)(nil)

// alongside is how many claims of a batch are renewed by themselves at a time.
const alongside = 4

// RenewBatch implements driver.BatchRenewer, by one statement for a thousand claims. Claims that
// share their key are renewed by themselves.
func (l *Locker) RenewBatch(
	ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error),
) {
	var single, together []int
	for i, c := range claims {
		if c.MaxHolders > 1 {
			single = append(single, i)
		} else {
			together = append(together, i)
		}
	}
	for part := range slices.Chunk(together, maxBatch) {
		single = append(single, l.renewTogether(ctx, claims, part, report)...)
	}
	l.renewSingly(ctx, claims, single, report)
}

// renewTogether renews a part of the claims. It returns the indexes of claims on which it has not
// reported, because they must be renewed by themselves.
func (l *Locker) renewTogether(
	ctx context.Context, claims []driver.Claim, part []int, report func(i int, held bool, err error),
) (single []int) {
	var of []driver.Claim
	for _, i := range part {
		of = append(of, claims[i])
	}
	answers, err := l.merger.renew(ctx, of)
	for n, i := range part {
		switch {
		case err != nil:
			report(i, false, l.storeError(driver.OpRenew, claims[i].Key, err))
		case answers[n].again && !answers[n].held:
			single = append(single, i)
		default:
			report(i, answers[n].held, answers[n].err)
		}
	}
	return single
}

// renewSingly renews claims by a statement each, a few at a time.
func (l *Locker) renewSingly(
	ctx context.Context, claims []driver.Claim, indexes []int,
	report func(i int, held bool, err error),
) {
	slots := make(chan struct{}, alongside)
	var all sync.WaitGroup
	for _, i := range indexes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			held, err := l.Renew(ctx, claims[i])
			report(i, held, err)
		})
	}
	all.Wait()
}

// query calls f for each row of a statement's answer.
func (l *Locker) query(
	ctx context.Context, f func(scan func(...any) error) error, statement string, args ...any,
) error {
	rows, err := l.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
