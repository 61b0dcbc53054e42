package sqlstore

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

// A behindError means that the store knows a later fence of the claim.
type behindError struct{ error }

func (e behindError) Unwrap() error { return e.error }

// A Lease is a *guard.Lease or a *guard.Leases, such as guard.FromContext returns.
type Lease = interface {
	// Claims returns the claims that the store has granted, under the fences that are in use.
	Claims() []driver.Claim
}

// CheckFence checks, inside of the caller's own transaction, that the lease is held under its
// fence. The backends have it under the same name, and document it.
func (l *Locker) CheckFence(ctx context.Context, tx Tx, lease Lease) error {
	for {
		claims := lease.Claims()
		ahead, err := l.check(ctx, tx, claims)
		switch {
		case isBehind(err) && awaitFence(ctx, lease, claims):
		case err != nil:
			return err
		default:
			return l.register(ctx, ahead)
		}
	}
}

// InTx calls f with a transaction of the Locker's database, after CheckFence, and commits it if f
// returns nil.
func (l *Locker) InTx(ctx context.Context, lease Lease, f func(tx *sql.Tx) error) error {
	for {
		claims := lease.Claims()
		ahead, err := l.try(ctx, claims, f)
		if isBehind(err) && awaitFence(ctx, lease, claims) {
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
	if err := l.dialect.Prepare(ctx); err != nil { // tx may take the only connection
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
		return nil, fmt.Errorf("%w: it has no claims", l.stale)
	}
	if err := l.dialect.Prepare(ctx); err != nil {
		return nil, l.storeError(driver.OpInspect, claims[0].Key, err)
	}
	for _, c := range claims {
		r, err := l.dialect.Lock(ctx, tx, c.Key)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil, l.notHeld(c)
		case err != nil:
			return nil, l.storeError(driver.OpInspect, c.Key, err)
		}
		h := r.holder(c)
		if later := r.Find(c.ID); h == nil && later != nil && c.Fence > 0 && c.Fence < later.First {
			return nil, behindError{fmt.Errorf("%w any more, but under a later one: %q, %d", l.stale, c.Key, c.Fence)}
		}
		if h == nil {
			return nil, l.notHeld(c)
		}
		if c.Fence <= h.Fence || h.MaxHolders == driver.Unlimited {
			continue
		}
		registrar, ok := l.dialect.(Registrar)
		if !ok {
			ahead = append(ahead, c)
			continue
		}
		h.Use(c.Fence, 0)
		if err := registrar.Register(ctx, tx, c.Key, r); err != nil {
			return nil, l.storeError(driver.OpInspect, c.Key, err)
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
func (r *Row) holder(c driver.Claim) *holders.Holder {
	h := r.Find(c.ID)
	if h == nil || h.Released || r.Done || c.Fence < h.First || c.Fence > h.Last {
		return nil
	}
	return h
}

// register notes that fences are in use, so that those before them are stale.
func (l *Locker) register(ctx context.Context, ahead []driver.Claim) error {
	for _, c := range ahead {
		holds, err := l.operate(ctx, c.Key, func(r *Row) (holds bool, _ holders.Effect) {
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
			return l.notHeld(c)
		}
	}
	return nil
}

// notHeld returns the error for a claim that is not held under its fence.
func (l *Locker) notHeld(c driver.Claim) error {
	return fmt.Errorf("%w: %q, %d", l.stale, c.Key, c.Fence)
}

func isBehind(err error) bool {
	var behind behindError
	return errors.As(err, &behind)
}
