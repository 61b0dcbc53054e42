package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Dialect has the statements of a backend. Each call of a Locker begins with Prepare. Keys are
// those of the table, which are bytes, and the times are those of the store's clock.
type Dialect interface {
	// Prepare finds the table, and returns an error if it cannot be used. It asks the store only
	// in the first call.
	Prepare(ctx context.Context) error
	// Change reads the key, has decide change it, and writes it, as if no other call ran
	// meanwhile. It may begin again, and calls decide each time. It fails with ErrRaces if other
	// calls have changed the key too often, and with ErrLocked if a grant would have to wait for
	// a transaction. See ByVersion.
	Change(ctx context.Context, key string, decide Decide) error
	// Lock reads the key in a transaction, and keeps new holders of it away until the transaction
	// has ended. It fails with sql.ErrNoRows if there is no row.
	Lock(ctx context.Context, tx Tx, key string) (*Row, error)
	// Renew renews claims that hold their keys alone. One row that another transaction has locked
	// must not delay the others. A claim may be there several times: the highest fence counts.
	Renew(ctx context.Context, claims []driver.Claim) ([]Renewal, error)
	// Look looks at keys with waiters. It returns nil if nothing has changed since the last time
	// that the same keys were looked at.
	Look(ctx context.Context, keys []string) ([]Seen, error)
	// Marked reports for each key whether it has a done marker.
	Marked(ctx context.Context, keys []string) ([]bool, error)
	// Keys returns up to n keys that begin with prefix, are larger than after, and are in use, in
	// order. upTo is the first key after those with the prefix, or nil.
	Keys(ctx context.Context, prefix, upTo, after []byte, n int) ([]string, error)
	// Clean deletes up to limit rows that nothing needs, and returns how many. A row stays if its
	// last fence is ahead of the clock.
	Clean(ctx context.Context, limit int) (int, error)
	// Append adds an entry with that key to a log, unless it exists, and drops the oldest ones.
	Append(ctx context.Context, log Log, key []byte, e driver.Entry, keep int) error
	// Entries returns the newest entries of the logs.
	Entries(ctx context.Context, logs []Log, n int) ([][]driver.Entry, error)
	// Counters returns the numbers of counters.
	Counters(ctx context.Context, keys []string) ([]int64, error)
	// Raise raises a counter, and keeps it for at least half of so many days.
	Raise(ctx context.Context, key string, to int64, days int) (was int64, err error)
	// Explain returns the kind of an error of the store, and the error with what to do about it.
	// The kind is "" if the error is another one, such as that of a connection.
	Explain(op driver.Op, err error) (driver.StoreErrorKind, error)
}

// An Alone is a Dialect that makes and releases plain claims by one statement.
type Alone interface {
	// AcquireAlone makes the claim, or fails with ErrShared: then Change makes it.
	AcquireAlone(ctx context.Context, c driver.Claim) (driver.Answer, error)
	// ReleaseAlone releases a claim that holds its key alone, or fails with ErrShared.
	ReleaseAlone(ctx context.Context, c driver.Claim, after driver.After) (bool, error)
}

// A Registrar is a Dialect whose Lock keeps out all other writers of the store. A fence is then
// registered in the transaction of the user: another one would wait for that.
type Registrar interface {
	// Register writes a row that Lock has read in the transaction.
	Register(ctx context.Context, tx Tx, key string, r *Row) error
}

// ErrShared means that a statement for claims that hold their key alone has done nothing.
var ErrShared = errors.New("claims share the key")

// A Decide changes a row. It may be called again, with a row that was read later.
type Decide func(r *Row) holders.Effect

// A Renewal is the answer to a claim that was renewed. If Again is set, the claim must be renewed
// by itself: claims share its key, or another transaction has locked the row.
type Renewal struct{ Held, Again bool }

// A Seen is a key as a look has found it.
type Seen struct {
	Version int64 // changes when the key does, and is 0 if there is no row
	Open    bool  // a claim might be granted, or be answered otherwise than before
}

// A Tx is a *sql.Tx, or another type with its method.
type Tx = interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A ScanFunc reads the columns of a row, as sql.Rows.Scan does.
type ScanFunc func(columns ...any) error

// comments are those of the sources, which the server need not read.
var comments = regexp.MustCompile(`(?m)^--.*\n|[ \t]*-- .*$`)

// Statements returns the statements of a folder by the names of their files, with words replaced by
// what follows each of them. AHEAD is holders.Ahead.
func Statements(sources embed.FS, words ...string) map[string]string {
	names := strings.NewReplacer(append(words, "AHEAD", strconv.Itoa(holders.Ahead))...)
	files, _ := sources.ReadDir(".") // cannot fail
	statements := map[string]string{}
	for _, file := range files {
		source, _ := sources.ReadFile(file.Name())
		statements[strings.TrimSuffix(file.Name(), ".sql")] = names.Replace(comments.ReplaceAllString(string(source), ""))
	}
	return statements
}
