package postgres

import (
	"context"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// Look implements sqlstore.Dialect.
func (d *dialect) Look(ctx context.Context, keys []string) ([]sqlstore.Seen, error) {
	return queryEach(ctx, d, keys, func(scan sqlstore.ScanFunc, seen []sqlstore.Seen) error {
		var i int
		var s sqlstore.Seen
		err := scan(&i, &s.Version, &s.Open)
		if err == nil {
			seen[i-1] = s
		}
		return err
	}, "poll")
}

// Marked implements sqlstore.Dialect.
func (d *dialect) Marked(ctx context.Context, keys []string) ([]bool, error) {
	return queryEach(ctx, d, keys, scanOne[bool], "marked")
}

// Keys implements sqlstore.Dialect.
func (d *dialect) Keys(ctx context.Context, prefix, upTo, after []byte, n int) (keys []string, err error) {
	var end any // a NULL, unless there is one
	if upTo != nil {
		end = upTo
	}
	err = d.query(ctx, func(scan sqlstore.ScanFunc) error {
		var key encoded
		err := scan(&key)
		if key != nil {
			keys = append(keys, string(key))
		}
		return err
	}, d.sql("keys"), prefix, end, after, n)
	return keys, err
}

// Clean implements sqlstore.Dialect.
func (d *dialect) Clean(ctx context.Context, limit int) (int, error) {
	result, err := d.db.ExecContext(ctx, d.sql("clean"), limit)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// queryEach runs a statement for several keys: $1 is a list of them, in JSON and base64. read reads
// a row into the answers, of which there is one for each key.
func queryEach[T any](
	ctx context.Context, d *dialect, keys []string,
	read func(scan sqlstore.ScanFunc, answers []T) error, statement string, args ...any,
) ([]T, error) {
	answers := make([]T, len(keys))
	args = append([]any{keysToJSON(keys)}, args...)
	return answers, d.query(ctx, func(scan sqlstore.ScanFunc) error { return read(scan, answers) }, d.sql(statement), args...)
}

// scanOne reads the index of a key, from 1, and the only answer for it.
func scanOne[T any](scan sqlstore.ScanFunc, answers []T) error {
	var i int
	var answer T
	err := scan(&i, &answer)
	if err == nil {
		answers[i-1] = answer
	}
	return err
}

// keysToJSON returns keys in JSON and base64.
func keysToJSON(keys []string) string {
	list := make([][]byte, len(keys))
	for i, key := range keys {
		list[i] = []byte(key)
	}
	return toJSON(list)
}
