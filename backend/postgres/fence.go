package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// ErrStale means that the lease is not held under that fence any more. Roll the transaction back.
var ErrStale = errors.New("postgres: the lease is not held under this fence")

// A Tx is a *sql.Tx, or another type with its method.
type Tx interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// CheckFence checks, inside of the caller's own transaction, that the lease on the key is held
// under the fence. If it returns nil, no other holder is granted the key before the transaction has
// ended, even if the lease is lost meanwhile. So a stale write cannot commit.
//
//	lease, _ := guard.FromContext(ctx)
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	err = locker.CheckFence(ctx, tx, lease.Key(), lease.Fence())
//
// Call it first in the transaction, before the reads that the work relies on. key is the key as the
// store has it: with a namespace (guard.WithNamespace), it is "namespace:key". The table of leases
// must be in the database of the transaction.
//
// It returns ErrStale if the lease has expired or was released, or if there is a newer holder. All
// other errors mean that it could not be checked. After any error, roll back. A transaction at a
// higher level than READ COMMITTED can fail with a serialization error, because renewals write the
// same row; then begin it again.
//
// The lock of the row does not delay renewals or the release. If another transaction waits for the
// key, it waits until this one has ended: keep it short. After a hand-off inside of the process,
// CheckFence also needs a connection of the Locker's own database handle.
func (l *Locker) CheckFence(ctx context.Context, tx Tx, key string, fence uint64) error {
	var state string
	var inUse, last, now int64
	var live bool
	var text []byte
	err := tx.QueryRowContext(ctx, l.sql.check, []byte(key)).
		Scan(&state, &inUse, &last, &live, &now, &text)
	f := int64(fence)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return stale(key, fence)
	case err != nil:
		return l.storeError(driver.OpInspect, key, err)
	case state == shared:
		return checkShared(text, time.UnixMicro(now), key, fence)
	case state != held, !live, f < inUse, f > last:
		return stale(key, fence)
	case f == inUse:
		return nil
	}
	// The lease was handed off inside of the process, which did not need the store.
	result, err := l.db.ExecContext(ctx, l.sql.register, []byte(key), f)
	if err != nil {
		return l.storeError(driver.OpInspect, key, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(stale(key, fence), err)
	}
	return nil
}

// checkShared checks a fence among those of the claims that share a key.
func checkShared(text []byte, now time.Time, key string, fence uint64) error {
	k, err := decode(text)
	if err != nil {
		return err
	}
	k.Expire(now)
	for _, h := range k.Holders {
		if h.Fence == fence && !h.Released {
			return nil
		}
	}
	return stale(key, fence)
}

func stale(key string, fence uint64) error {
	return fmt.Errorf("%w: %q, %d", ErrStale, key, fence)
}

// InTx calls f with a transaction of the Locker's database, after CheckFence, and commits it if f
// returns nil. It is for work that has its data and its leases in one database.
func (l *Locker) InTx(
	ctx context.Context, key string, fence uint64, f func(tx *sql.Tx) error,
) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return l.storeError(driver.OpInspect, key, err)
	}
	defer tx.Rollback()
	if err := l.CheckFence(ctx, tx, key, fence); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}
