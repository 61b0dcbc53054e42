package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// ErrStale means that the lease is not held under its fence any more. Roll the transaction back.
var ErrStale = errors.New("postgres: the lease is not held under its fence")

// errBehind means that the store knows a later fence of the claim.
var errBehind = fmt.Errorf("%w any more, but under a later one", ErrStale)

// A Tx is a *sql.Tx, or another type with its method.
type Tx interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Lease is a *guard.Lease or a *guard.Leases, such as guard.FromContext returns.
type Lease interface {
	// Claims returns the claims that the store has granted, under the fences that are in use.
	Claims() []driver.Claim
}

// CheckFence checks, inside of the caller's own transaction, that the lease is held under its
// fence. If it returns nil, no other holder is granted the key before the transaction has ended,
// even if the lease is lost meanwhile. So a stale write cannot commit.
//
//	lease, _ := guard.FromContext(ctx)
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	err = locker.CheckFence(ctx, tx, lease)
//
// Call it first in the transaction, before the reads that the work relies on. The table of leases
// must be in the database of the transaction.
//
// A DoAll inside of a run raises the fence of the key that it joins, in the store first. Until the
// lease has that fence, too, CheckFence and InTx wait, as long as the lease is valid.
//
// It returns ErrStale if the lease has expired or was released, or if there is a newer holder. It
// cannot distinguish the calls of one Guard that share one lease (guard.WithShared): it succeeds
// for each of them until the last one has released the lease. All other errors mean that the lease
// could not be checked. After any error, roll back. A transaction at a higher level than READ
// COMMITTED can fail with a serialization error, because renewals write the same row; then begin
// it again.
//
// The lock of the row does not delay renewals or the release. If another transaction waits for the
// key, it waits until this one has ended: keep it short. After a hand-off inside of the process,
// and in the first call of a Locker, CheckFence also needs a connection of the Locker's own
// database handle. If the transaction has the last one of a pool, that waits until ctx ends: use
// InTx, which needs no second connection.
func (l *Locker) CheckFence(ctx context.Context, tx Tx, lease Lease) error {
	for {
		claims := lease.Claims()
		ahead, err := l.check(ctx, tx, claims)
		switch {
		case errors.Is(err, errBehind) && awaitFence(ctx, lease, claims):
		case err != nil:
			return err
		default:
			return l.register(ctx, ahead)
		}
	}
}

// InTx calls f with a transaction of the Locker's database, after CheckFence, and commits it if f
// returns nil. It is for work that has its data and its leases in one database. It leaves one
// connection of the pool to renewals: further calls wait until another transaction has ended.
func (l *Locker) InTx(ctx context.Context, lease Lease, f func(tx *sql.Tx) error) error {
	for {
		claims := lease.Claims()
		ahead, err := l.try(ctx, claims, f)
		if errors.Is(err, errBehind) && awaitFence(ctx, lease, claims) {
			continue
		}
		if err != nil || len(ahead) == 0 {
			return err
		}
		if err := l.register(ctx, ahead); err != nil {
			return err
		}
	}
}

// try is InTx, unless the store has to know first that some fences are in use. Then it returns the
// claims, and has not called f: the transaction must not keep its connection meanwhile, because it
// can be the last one of a pool.
func (l *Locker) try(
	ctx context.Context, claims []driver.Claim, f func(tx *sql.Tx) error,
) (ahead []driver.Claim, err error) {
	if _, err := l.resolve(ctx); err != nil { // tx may take the only connection
		return nil, l.storeError(driver.OpInspect, "", err)
	}
	if err := l.transactions.enter(ctx, driver.OpInspect); err != nil {
		return nil, l.storeError(driver.OpInspect, "", err)
	}
	defer l.transactions.leave(driver.OpInspect)
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, l.storeError(driver.OpInspect, "", err)
	}
	defer tx.Rollback()
	if ahead, err = l.check(ctx, tx, claims); err != nil || len(ahead) > 0 {
		return ahead, err
	}
	if err := f(tx); err != nil {
		return nil, err
	}
	return nil, tx.Commit()
}

// check checks the fences of a lease. It returns the claims that use a later fence than the store
// knows: after a hand-off inside of the process, which does not need the store.
func (l *Locker) check(ctx context.Context, tx Tx, claims []driver.Claim) (ahead []driver.Claim, err error) {
	if len(claims) == 0 {
		return nil, fmt.Errorf("%w: it has no claims", ErrStale)
	}
	p, err := l.resolve(ctx)
	if err != nil {
		return nil, l.storeError(driver.OpInspect, claims[0].Key, err)
	}
	for _, c := range claims {
		r, err := scan(tx.QueryRowContext(ctx, p.statements["check"], []byte(c.Key)))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil, stale(c)
		case err != nil:
			return nil, l.storeError(driver.OpInspect, c.Key, err)
		}
		h := r.holder(c)
		if later := r.Find(c.ID); h == nil && later != nil && c.Fence > 0 && c.Fence < later.First {
			return nil, fmt.Errorf("%w: %q, %d", errBehind, c.Key, c.Fence)
		}
		if h == nil {
			return nil, stale(c)
		}
		if c.Fence > h.Fence && h.MaxHolders != driver.Unlimited {
			ahead = append(ahead, c)
		}
	}
	return ahead, nil
}

// awaitFence returns true when the lease has other fences than the claims, which the store knows to
// be behind. It returns false if the lease is not valid: its fences have gone on to another call.
func awaitFence(ctx context.Context, lease Lease, claims []driver.Claim) bool {
	l, ok := lease.(interface{ Valid() bool })
	if !ok {
		return false
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.Valid() {
		if now := lease.Claims(); !slices.Equal(now, claims) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return false
}

// holder returns the holder with the ID of the claim, or nil if it does not hold the key under the
// fence of the claim.
func (r *row) holder(c driver.Claim) *holders.Holder {
	h := r.Find(c.ID)
	if h == nil || h.Released || r.Done || c.Fence < h.First || c.Fence > h.Last {
		return nil
	}
	return h
}

// register notes that fences are in use, so that those before them are stale.
func (l *Locker) register(ctx context.Context, ahead []driver.Claim) error {
	for _, c := range ahead {
		holds, err := l.operate(ctx, c.Key, func(r *row) (holds bool, _ holders.Effect) {
			h := r.holder(c)
			if h == nil {
				return false, holders.Nothing
			}
			h.Use(c.Fence, 0)
			return true, holders.Changed
		})
		if err != nil {
			return err
		}
		if !holds {
			return stale(c)
		}
	}
	return nil
}

func stale(c driver.Claim) error { return fmt.Errorf("%w: %q, %d", ErrStale, c.Key, c.Fence) }
