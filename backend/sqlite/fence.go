package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// ErrStale means that the lease is not held under its fence any more. Roll the transaction back.
var ErrStale = errors.New("sqlite: the lease is not held under its fence")

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
// Call it first in the transaction, before any read. The table of leases must be in the file of the
// transaction. It makes the transaction the writer of the file: nothing else is written until the
// transaction has ended, also no renewal. So keep the transaction shorter than a third of the TTL.
// It waits up to five seconds for another writer.
//
// It returns ErrStale if the lease has expired or was released, or if there is a newer holder. It
// cannot distinguish the calls of one Guard that share one lease (guard.WithShared): it succeeds
// for each of them until the last one has released the lease. All other errors mean that the lease
// could not be checked. After any error, roll back.
func (l *Locker) CheckFence(ctx context.Context, tx Tx, lease Lease) error {
	return l.locker.CheckFence(ctx, tx, lease)
}

// InTx calls f with a transaction of the Locker's database, after CheckFence, and commits it if f
// returns nil. It is for work that has its data and its leases in one file. It leaves one
// connection of the pool to renewals: further calls wait until another transaction has ended.
func (l *Locker) InTx(ctx context.Context, lease Lease, f func(tx *sql.Tx) error) error {
	return l.locker.InTx(ctx, lease, f)
}

// lockWithin is for how long Lock waits for another writer. A transaction that has read before can
// never become the writer if another one has written since, which not every driver tells apart.
const lockWithin = 5 * time.Second

// Lock implements sqlstore.Dialect, by a write that changes nothing.
func (d *dialect) Lock(ctx context.Context, tx sqlstore.Tx, key string) (r *sqlstore.Row, err error) {
	waits, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	err = whileLocked(waits, func() error {
		r, err = scan(tx.QueryRowContext(ctx, d.statements["lock"], []byte(key)))
		return err
	})
	return r, err
}

// Register implements sqlstore.Registrar.
func (d *dialect) Register(ctx context.Context, tx sqlstore.Tx, key string, r *sqlstore.Row) error {
	var version int64 // a Tx has a method for queries alone
	return tx.QueryRowContext(ctx, d.statements["write"]+" RETURNING version", columns(key, r)...).Scan(&version)
}
