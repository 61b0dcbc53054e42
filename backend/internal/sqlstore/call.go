package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Ask calls f, and returns when f does or when ctx has ended: not every driver ends a call with its
// context, and f may go on for a while. f must not use what the caller goes on to use. All calls
// but renewals leave a connection to renewals.
func Ask[T any](
	ctx context.Context, l *Locker, op driver.Op, key string, f func(context.Context) (T, error),
) (T, error) {
	var none T
	if l.wrong != nil {
		return none, l.storeError(op, key, l.wrong)
	}
	if err := ctx.Err(); err != nil {
		return none, driver.NewStoreError(l.name, op, key, err)
	}
	if err := l.calls.enter(ctx, op); err != nil {
		return none, l.storeError(op, key, err)
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t, err := contain.Within(ctx, func() (T, error) {
		defer l.calls.leave(op)
		defer cancel()
		if err := l.dialect.Prepare(own); err != nil {
			return none, err
		}
		return f(own)
	})
	if err != nil {
		failed := l.storeError(op, key, err) // before cancel has changed what it reports
		if l.grace == 0 {
			cancel()
		} else {
			time.AfterFunc(l.grace, cancel) // f may go on
		}
		return none, failed
	}
	return t, nil
}

// InBackground calls f, which no caller waits for, through the gate of all calls, when the table is
// known.
func (l *Locker) InBackground(ctx context.Context, within time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := l.calls.enter(ctx, driver.OpInspect); err != nil {
		return err
	}
	defer l.calls.leave(driver.OpInspect)
	return contain.Err(func() error {
		if err := l.dialect.Prepare(ctx); err != nil {
			return err
		}
		return f(ctx)
	})
}

// storeError returns the error of an operation on a key.
func (l *Locker) storeError(op driver.Op, key string, err error) *driver.StoreError {
	failed := &driver.StoreError{Backend: l.name, Op: op, Key: key}
	var batch *driver.StoreError // the error of a statement for several claims
	if errors.As(err, &batch) {
		failed.Kind, failed.Err = batch.Kind, batch.Err
	} else if failed.Kind, failed.Err = l.dialect.Explain(op, err); failed.Kind == "" {
		failed.Kind = l.kindOf(op, failed.Err)
	}
	if !strings.Contains(failed.Err.Error(), l.addr) { // it does not name the server yet
		failed.Addr = l.addr
	}
	return failed
}

// kindOf returns the kind of an error that is not one of the store.
func (l *Locker) kindOf(op driver.Op, err error) driver.StoreErrorKind {
	var network net.Error
	var setting *driver.SettingError
	switch {
	case errors.As(err, &setting):
		return driver.KindSettings
	case errors.Is(err, context.Canceled):
		return driver.KindCanceled
	case errors.Is(err, context.DeadlineExceeded):
		s := l.db.Stats()
		most := s.MaxOpenConnections
		if op != driver.OpRenew {
			most = max(most-1, min(most, 1)) // see gate
		}
		if most > 0 && s.InUse >= most {
			return driver.KindPoolExhausted
		}
		return driver.KindTimeout
	case errors.As(err, &network) && network.Timeout():
		return driver.KindTimeout
	case strings.HasSuffix(err.Error(), "sql: database is closed"):
		return driver.KindClosed
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, sqldriver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		return driver.KindConnection
	}
	return driver.KindOther
}
