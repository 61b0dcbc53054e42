package mysql

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// sql returns a statement with its arguments in the places of its question marks. Bytes are in
// hexadecimal, which means the same in each sql_mode and character set. So a call takes one round
// trip, whatever the DSN says: the driver would prepare a statement with arguments first.
func (d *dialect) sql(name string, args ...any) string {
	parts := strings.Split(d.place.Load().statements[name], "?")
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(part)
		if i < len(parts)-1 {
			literal(&b, args[i])
		}
	}
	return b.String()
}

// A pair is a key and an ID, or what else a statement compares with two columns.
type pair [2]string

// literal writes a value as SQL does. A nil slice is NULL.
func literal(b *strings.Builder, value any) {
	switch v := value.(type) {
	case []byte:
		if v == nil {
			b.WriteString("NULL")
			return
		}
		b.WriteString("X'")
		_, _ = hex.NewEncoder(b).Write(v)
		b.WriteByte('\'')
	case string:
		literal(b, []byte(v))
	case []string:
		for i, s := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			literal(b, s)
		}
	case []pair:
		for i, p := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('(')
			literal(b, p[:])
			b.WriteByte(')')
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case int:
		b.WriteString(strconv.Itoa(v))
	default:
		panic(fmt.Sprintf("mysql: a %T in a statement", value))
	}
}

// exec runs a statement, and returns how many rows it has changed.
func (d *dialect) exec(ctx context.Context, on execer, name string, args ...any) (int64, error) {
	statement := d.sql(name, args...)
	if len(statement) > d.place.Load().maxStatement {
		return 0, errPacket // the server would answer by cutting the connection
	}
	result, err := on.ExecContext(ctx, statement)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query calls f for each row of the answer to a statement. The first column, which f does not read,
// is STATUS.
func (d *dialect) query(ctx context.Context, on queryer, f func(scan sqlstore.ScanFunc) error, name string, args ...any) error {
	rows, err := on.QueryContext(ctx, d.sql(name, args...))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(checked(rows.Scan)); err != nil {
			return err
		}
	}
	return rows.Err()
}

// checked returns a ScanFunc for the columns after STATUS.
func checked(scan sqlstore.ScanFunc) sqlstore.ScanFunc {
	return func(columns ...any) error {
		var status string
		if err := scan(append([]any{&status}, columns...)...); err != nil {
			return err
		}
		readOnly, autocommit, _ := strings.Cut(status, " ")
		switch {
		case !isOff(readOnly):
			return errReplica
		case isOff(autocommit):
			return errNoAutocommit
		}
		return nil
	}
}

// isOff reports whether a setting is off. Servers write it as a number or as a word.
func isOff(value string) bool { return value == "0" || strings.EqualFold(value, "off") }
