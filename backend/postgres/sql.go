package postgres

import (
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
)

// sources has a file for each statement.
//
//go:embed *.sql
var sources embed.FS

// resolveSource finds the table, so it is the same for all tables.
//
//go:embed resolve.sql
var resolveSource string

// comments are those of the sources, which the server need not read.
var comments = regexp.MustCompile(`(?m)^--.*\n|[ \t]*-- .*$`)

// newStatements returns the statements by the names of their files, with words replaced by what
// follows each of them.
func newStatements(words ...string) map[string]string {
	names := strings.NewReplacer(append(words, "AHEAD", strconv.Itoa(holders.Ahead))...)
	files, _ := sources.ReadDir(".") // cannot fail
	statements := map[string]string{}
	for _, file := range files {
		source, _ := sources.ReadFile(file.Name())
		statements[strings.TrimSuffix(file.Name(), ".sql")] = names.Replace(comments.ReplaceAllString(string(source), ""))
	}
	return statements
}

// sql returns a statement for the table, after resolve.
func (l *Locker) sql(name string) string { return l.place.Load().statements[name] }

// A scanFunc reads the columns of a row, as sql.Rows.Scan does.
type scanFunc func(columns ...any) error

// query calls f for each row of the answer to a statement. The first column, which f does not read,
// says whether the server is a standby: it may be behind, so its answer does not count.
func (l *Locker) query(ctx context.Context, f func(scan scanFunc) error, statement string, args ...any) error {
	rows, err := l.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(withoutStandby(rows.Scan)); err != nil {
			return err
		}
	}
	return rows.Err()
}

// withoutStandby returns a scanFunc for the columns after the first one.
func withoutStandby(scan scanFunc) scanFunc {
	return func(columns ...any) error {
		var standby bool
		err := scan(append([]any{&standby}, columns...)...)
		if err == nil && standby {
			err = errStandby
		}
		return err
	}
}

// toJSON returns a list of keys or claims, which has a form in JSON.
func toJSON(v any) string {
	text, _ := json.Marshal(v) // cannot fail
	return string(text)
}

// An encoded is a bytea that a statement answers in base64. Some drivers get a bytea as a text in
// some of their modes, and read only one of the two forms that bytea_output can give it.
type encoded []byte

// Scan implements sql.Scanner.
func (e *encoded) Scan(value any) (err error) {
	*e = nil
	switch v := value.(type) {
	case nil:
	case string:
		*e, err = base64.StdEncoding.DecodeString(v)
	case []byte:
		*e, err = base64.StdEncoding.DecodeString(string(v))
	default:
		err = fmt.Errorf("a %T in the place of base64", v)
	}
	return err
}
