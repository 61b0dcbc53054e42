package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// errStandby is the answer of a server that only follows another one.
var errStandby = errors.New("the server is a standby")

// Explain implements sqlstore.Dialect.
func (d *dialect) Explain(_ driver.Op, err error) (driver.StoreErrorKind, error) {
	code := sqlState(err)
	switch {
	case code == "" && errors.Is(err, errStandby):
		return driver.KindReadOnly, err
	case code == "":
		return "", err
	case code == "42P01" || code == "42703":
		err = fmt.Errorf("the table %q is missing or old, or not in the search_path: "+
			"call Migrate, apply Schema, or name its schema by WithTable: %w", d.table, err)
	case code == "26000" || code == "42P05":
		err = fmt.Errorf("a pooler in transaction mode needs a driver that prepares no statements: %w", err)
	}
	return kindOf(code), err
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

// kindOf returns the kind of an error with that SQLSTATE.
func kindOf(code string) driver.StoreErrorKind {
	for _, s := range states {
		if strings.HasPrefix(code, s.code) {
			return s.kind
		}
	}
	return driver.KindOther
}
