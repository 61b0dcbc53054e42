// Package sqlstore has what the backends on SQL share: the decisions about a row, the calls with
// their connections, renewals in batches, waiters, the check of fences, the ledger and the
// inspector. A backend brings a Dialect, which has the statements.
package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker is what the Lockers of the backends embed. New makes it.
type Locker struct {
	name    string // of the backend
	addr    string // see At
	db      *sql.DB
	dialect Dialect
	stale   error // the backend's ErrStale
	wrong   error // a setting cannot work
	grace   time.Duration

	subscriber subscriber
	merger     merger
	calls      gate
	// transactions bounds how many calls of InTx run.
	transactions gate
	releases     atomic.Uint64
	cleaning     atomic.Bool
}

var (
	_ driver.Locker     = (*Locker)(nil)
	_ driver.Describer  = (*Locker)(nil)
	_ driver.Async      = (*Locker)(nil)
	_ driver.Subscriber = (*Locker)(nil)
	_ driver.Ledger     = (*Locker)(nil)
	_ driver.Inspector  = (*Locker)(nil)
)

// New returns the Locker of a backend of that name. stale is its error for a lease that is not
// held. A nil db is refused.
func New(name string, db *sql.DB, stale error, dialect Dialect) *Locker {
	l := &Locker{name: name, db: db, dialect: dialect, stale: stale, grace: statementGrace}
	l.subscriber.locker, l.merger.locker = l, l
	l.subscriber.every = pollEvery
	l.calls.db, l.transactions.db = db, db
	if db == nil {
		l.Refuse("db", "", "must not be nil")
	}
	return l
}

// EndCalls has statements end when their callers leave, before the Locker is used. By default, they
// go on for three seconds: most drivers end a statement by closing its connection.
func (l *Locker) EndCalls() { l.grace = 0 }

// At sets what errors, and the page of package inspect/web, call the server or the file.
func (l *Locker) At(addr string) {
	if strings.Contains(addr, "@") && !strings.HasPrefix(addr, "/") {
		l.Refuse("WithAddr", "", "must have no user and no password, because it is shown")
		return
	}
	l.addr = addr
}

// Refuse notes that a setting cannot work. guard.New then refuses the Locker.
func (l *Locker) Refuse(setting, value, reason string) {
	if l.wrong == nil {
		l.wrong = &driver.SettingError{Setting: setting, Value: value, Reason: reason}
	}
}

// Describe implements driver.Describer. Braces are allowed in keys. Only the ID distinguishes
// claims. Any number of them can share a key.
func (l *Locker) Describe() driver.Description {
	return driver.Description{
		Name: l.name, Addr: l.addr, Err: l.wrong, CheckKey: driver.CheckKeyBytes, Shares: func(int) error { return nil },
	}
}

// lockedFor is after what time a claim may be made again that a transaction keeps away.
const lockedFor = 100 * time.Millisecond

// TryAcquire implements driver.Locker.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	return Ask(ctx, l, driver.OpAcquire, c.Key, func(ctx context.Context) (answer driver.Answer, err error) {
		err = ErrShared
		if alone, ok := l.dialect.(Alone); ok {
			answer, err = alone.AcquireAlone(ctx, c)
		}
		if errors.Is(err, ErrShared) {
			answer, err = change(ctx, l, c.Key, func(r *Row) (driver.Answer, holders.Effect) { return r.acquire(c) })
		}
		switch {
		case errors.Is(err, ErrLocked):
			return driver.Answer{State: driver.Busy, Left: lockedFor}, nil
		case errors.Is(err, ErrRaces):
			return driver.Answer{State: driver.Busy, Reason: driver.Undecided, Left: time.Millisecond}, nil
		}
		return answer, err
	})
}

// Release implements driver.Locker.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	after.Record = bytes.Clone(after.Record) // the statement may outlast the call
	released, err := Ask(ctx, l, driver.OpRelease, c.Key, func(ctx context.Context) (bool, error) {
		if alone, ok := l.dialect.(Alone); ok && c.MaxHolders <= 1 {
			if held, err := alone.ReleaseAlone(ctx, c, after); !errors.Is(err, ErrShared) {
				return held, err
			}
		}
		return change(ctx, l, c.Key, func(r *Row) (bool, holders.Effect) { return r.Release(c, after, r.Now) })
	})
	if released {
		l.subscriber.notify(Payload(c.Key)) // other processes learn it from the store
		l.cleanSometimes()
	}
	return released, err
}

// change changes a key by decide, and returns what decide has returned.
func change[T any](
	ctx context.Context, l *Locker, key string, decide func(r *Row) (T, holders.Effect),
) (answer T, err error) {
	err = l.dialect.Change(ctx, key, func(r *Row) (effect holders.Effect) {
		answer, effect = decide(r)
		return effect
	})
	return answer, err
}
