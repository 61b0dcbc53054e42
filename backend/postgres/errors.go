package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// errStandby is the answer of a server that only follows another one.
var errStandby = errors.New("the server is a standby")

// errRaces is the end of a call that others have overtaken too often.
var errRaces = errors.New("other calls have changed the key meanwhile")

// ask calls f, and returns when f does or when ctx has ended: not every driver ends a call with its
// context, and f may go on for a while. f must not use what the caller goes on to use. All calls
// but renewals leave a connection to renewals.
func ask[T any](
	ctx context.Context, l *Locker, op driver.Op, key string, f func(context.Context) (T, error),
) (T, error) {
	var none T
	if l.wrong != nil {
		return none, l.storeError(op, key, l.wrong)
	}
	if err := ctx.Err(); err != nil {
		return none, driver.NewStoreError(name, op, key, err)
	}
	if err := l.calls.enter(ctx, op); err != nil {
		return none, l.storeError(op, key, err)
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t, err := contain.Within(ctx, func() (T, error) {
		defer l.calls.leave(op)
		defer cancel()
		if _, err := l.resolve(own); err != nil {
			return none, err
		}
		return f(own)
	})
	if err != nil {
		time.AfterFunc(statementGrace, cancel) // f may go on
		return none, l.storeError(op, key, err)
	}
	return t, nil
}

// name is the name of the backend in errors.
const name = "postgres"

// storeError returns the error of an operation on a key.
func (l *Locker) storeError(op driver.Op, key string, err error) *driver.StoreError {
	var batch *driver.StoreError // the error of a statement for several claims
	if errors.As(err, &batch) {
		return &driver.StoreError{Backend: name, Op: op, Key: key, Kind: batch.Kind, Err: batch.Err}
	}
	kind := l.kindOf(op, err)
	switch code := sqlState(err); code {
	case "42P01", "42703":
		err = fmt.Errorf("the table %s is missing or old, or not in the search_path: "+
			"call Migrate, apply Schema, or name its schema by WithTable: %w", l.table, err)
	case "26000", "42P05":
		err = fmt.Errorf("a pooler in transaction mode needs a driver that prepares no statements: %w", err)
	}
	return &driver.StoreError{Backend: name, Op: op, Key: key, Kind: kind, Err: err}
}

// stateError is an error of the server, as pgx and lib/pq have it.
type stateError interface {
	error
	SQLState() string
}

func sqlState(err error) string {
	var s stateError
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return ""
}

// isRace reports whether the statement has failed, and has changed nothing, because of another
// transaction.
func isRace(err error) bool {
	code := sqlState(err)
	return code == "40001" || code == "40P01" // serialization failure, deadlock
}

// states are the kinds of errors by the beginning of their SQLSTATE. The first match decides.
var states = []struct {
	code string
	kind driver.StoreErrorKind
}{
	{"08", driver.KindConnection},
	{"57P01", driver.KindConnection}, // the server shuts down
	{"57P02", driver.KindConnection}, // it has crashed
	{"57P03", driver.KindLoading},    // it starts, or recovers
	{"57014", driver.KindTimeout},    // statement_timeout
	{"57P05", driver.KindConnection}, // idle_session_timeout
	{"55P03", driver.KindTimeout},    // lock_timeout
	{"25006", driver.KindReadOnly},   // a standby, or default_transaction_read_only
	{"53300", driver.KindLimit},      // max_connections
	{"53200", driver.KindOOM},
	{"53100", driver.KindNotPersisted}, // the disk is full
	{"58030", driver.KindNotPersisted}, // an error of the disk
	{"28", driver.KindAuth},
	{"42501", driver.KindAuth},        // a missing right
	{"3D000", driver.KindSettings},    // no such database
	{"3F000", driver.KindSettings},    // no such schema
	{"42P01", driver.KindSettings},    // no such table
	{"42703", driver.KindSettings},    // no such column
	{"42", driver.KindUnsupported},    // another program's table, or an old server
	{"0A", driver.KindUnsupported},    //
	{"26000", driver.KindUnsupported}, // a prepared statement of another session
}

func (l *Locker) kindOf(op driver.Op, err error) driver.StoreErrorKind {
	if code := sqlState(err); code != "" {
		for _, s := range states {
			if strings.HasPrefix(code, s.code) {
				return s.kind
			}
		}
		return driver.KindOther
	}
	var network net.Error
	var setting *driver.SettingError
	switch {
	case errors.As(err, &setting):
		return driver.KindSettings
	case errors.Is(err, errStandby):
		return driver.KindReadOnly
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
