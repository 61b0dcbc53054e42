package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.BatchRenewer = (*Locker)(nil)

const (
	// maxBatch is how many claims a statement renews.
	maxBatch = 1000
	// alongside is how many claims of a batch are renewed by themselves at a time.
	alongside = 4
)

// A batchClaim is a claim in the statement of a batch.
type batchClaim struct {
	I       int    `json:"i"`
	Key     []byte `json:"key"`
	ID      string `json:"id"`
	Fence   uint64 `json:"fence"`
	Reserve int    `json:"reserve"`
}

// RenewBatch implements driver.BatchRenewer, by one statement for a thousand claims. Claims that
// share their key are renewed by themselves.
func (l *Locker) RenewBatch(
	ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error),
) {
	var single []int
	var batch []batchClaim
	for i, c := range claims {
		if c.Among > 1 || c.Seat > 0 {
			single = append(single, i)
			continue
		}
		batch = append(batch, batchClaim{i, []byte(c.Key), c.ID, c.Fence, max(c.Reserve, 0)})
	}
	for len(batch) > 0 {
		n := min(len(batch), maxBatch)
		single = append(single, l.renewTogether(ctx, claims, batch[:n], report)...)
		batch = batch[n:]
	}
	l.renewSingly(ctx, claims, single, report)
}

// renewTogether renews a part of the claims. It returns the indexes of claims on which it has not
// reported, because they must be renewed by themselves.
func (l *Locker) renewTogether(
	ctx context.Context, claims []driver.Claim, batch []batchClaim,
	report func(i int, held bool, err error),
) (single []int) {
	type answer struct {
		i           int
		held, again bool
	}
	first := claims[batch[0].I]
	answers, err := ask(ctx, l, driver.OpRenew, first.Key, func(ctx context.Context) (all []answer, err error) {
		text, err := json.Marshal(batch)
		if err != nil {
			return nil, err
		}
		err = l.query(ctx, func(scan func(...any) error) error {
			var a answer
			err := scan(&a.i, &a.held, &a.again)
			all = append(all, a)
			return err
		}, l.sql().renewBatch, string(text), micros(first.TTL))
		return all, err
	})
	if isRace(err) {
		for _, c := range batch {
			single = append(single, c.I)
		}
		return single
	}
	var store *driver.StoreError
	if errors.As(err, &store) {
		for _, c := range batch {
			of := *store
			of.Key = claims[c.I].Key
			report(c.I, false, &of)
		}
		return nil
	}
	for _, a := range answers {
		if !a.held && a.again {
			single = append(single, a.i)
			continue
		}
		report(a.i, a.held, nil)
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
