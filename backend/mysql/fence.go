package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

var (
	// ErrStale means that the lease is not held under its fence any more. Roll the transaction
	// back.
	ErrStale = errors.New("mysql: the lease is not held under its fence")

	errSeveral = errors.New("a fence cannot be checked where several servers accept writes")
)

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
// Call it first in the transaction, before the reads that the work relies on. At REPEATABLE READ, a
// transaction that has read before does not see what has happened to the lease since: the check is
// then likely to return ErrStale. At SERIALIZABLE, each read is a lock, so renewals wait until the
// transaction has ended: it has to be shorter than a third of the TTL.
//
// The table of leases must be on the server of the transaction. On a cluster with several writers
// (Galera, a group with several primaries, TiDB), each check fails.
//
// It returns ErrStale if the lease has expired or was released, or if there is a newer holder. It
// cannot distinguish the calls of one Guard that share one lease (guard.WithShared): it succeeds
// for each of them until the last one has released the lease. All other errors mean that the lease
// could not be checked. After any error, roll back.
//
// A DoAll inside of a run raises the fence of the key that it joins, in the store first. Until the
// lease has that fence, too, CheckFence and InTx wait, as long as the lease is valid.
//
// The lock of the gate does not delay renewals or the release. Claims of the key are busy until the
// transaction has ended: keep it short. After a hand-off inside of the process, and in the first
// call of a Locker, CheckFence also needs a connection of the Locker's own database handle: if the
// transaction has the last one of a pool, use InTx, which needs no second connection.
func (l *Locker) CheckFence(ctx context.Context, tx Tx, lease Lease) error {
	return l.locker.CheckFence(ctx, tx, lease)
}

// InTx calls f with a transaction of the Locker's database, after CheckFence, and commits it if f
// returns nil. It is for work that has its data and its leases in one database. It leaves one
// connection of the pool to renewals: further calls wait until another transaction has ended.
func (l *Locker) InTx(ctx context.Context, lease Lease, f func(tx *sql.Tx) error) error {
	return l.locker.InTx(ctx, lease, f)
}

// Lock implements sqlstore.Dialect. The gate keeps new holders away from now on. The row that is
// read then is that of the last grant if both have the same version of it. Otherwise, the
// transaction sees a row that is older than that.
func (d *dialect) Lock(ctx context.Context, tx sqlstore.Tx, key string) (*sqlstore.Row, error) {
	if why := d.place.Load().several; why != "" {
		return nil, fmt.Errorf("%w: %s", errSeveral, why)
	}
	var granted int64
	if err := tx.QueryRowContext(ctx, d.sql("gate", gateOf(key))).Scan(&granted); err != nil {
		if number(err) == changed {
			err = sql.ErrNoRows // innodb_snapshot_isolation: there was a grant since its first read
		}
		return nil, err
	}
	r, err := d.read(ctx, tx, key)
	if err == nil && r.granted != granted {
		err = sql.ErrNoRows
	}
	return r.Row, err
}
