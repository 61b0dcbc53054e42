package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// ErrStale means that the lease is not held under its fence any more. Roll the transaction back.
var ErrStale = errors.New("postgres: the lease is not held under its fence")

// A Tx is a *sql.Tx, or another type with its method.
type Tx = sqlstore.Tx

// A Lease is a *guard.Lease or a *guard.Leases, such as guard.FromContext returns.
type Lease = sqlstore.Lease

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
	return l.locker.CheckFence(ctx, tx, lease)
}

// InTx calls f with a transaction of the Locker's database, after CheckFence, and commits it if f
// returns nil. It is for work that has its data and its leases in one database. It leaves one
// connection of the pool to renewals: further calls wait until another transaction has ended.
func (l *Locker) InTx(ctx context.Context, lease Lease, f func(tx *sql.Tx) error) error {
	return l.locker.InTx(ctx, lease, f)
}
