package postgres

import (
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// sources has a file for each statement.
//
//go:embed *.sql
var sources embed.FS

// resolveSource finds the table, so it is the same for all tables.
//
//go:embed resolve.sql
var resolveSource string

// sql returns a statement for the table, after resolve.
func (d *dialect) sql(name string) string { return d.place.Load().statements[name] }

// query calls f for each row of the answer to a statement. The first column, which f does not read,
// says whether the server is a standby: it may be behind, so its answer does not count.
func (d *dialect) query(ctx context.Context, f func(scan sqlstore.ScanFunc) error, statement string, args ...any) error {
	rows, err := d.db.QueryContext(ctx, statement, args...)
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

// withoutStandby returns a ScanFunc for the columns after the first one.
func withoutStandby(scan sqlstore.ScanFunc) sqlstore.ScanFunc {
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
