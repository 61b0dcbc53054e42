package mysql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// chunkSize is how many keys a statement has.
const chunkSize = 500

// queryEach runs a statement for keys, some of them at a time.
func (d *dialect) queryEach(ctx context.Context, keys []string, f func(scan sqlstore.ScanFunc) error, statement string) error {
	for chunk := range slices.Chunk(keys, chunkSize) {
		if err := d.query(ctx, d.db, f, statement, chunk); err != nil {
			return err
		}
	}
	return nil
}

// Look implements sqlstore.Dialect.
func (d *dialect) Look(ctx context.Context, keys []string) ([]sqlstore.Seen, error) {
	found := map[string]sqlstore.Seen{}
	err := d.queryEach(ctx, keys, func(scan sqlstore.ScanFunc) error {
		var key string
		var seen sqlstore.Seen
		err := scan(&key, &seen.Version, &seen.Open)
		found[key] = seen
		return err
	}, "poll")
	all := make([]sqlstore.Seen, len(keys))
	for i, key := range keys {
		all[i] = sqlstore.Seen{Open: true}
		if seen, ok := found[key]; ok {
			all[i] = seen
		}
	}
	return all, err
}

// Marked implements sqlstore.Dialect.
func (d *dialect) Marked(ctx context.Context, keys []string) ([]bool, error) {
	found := map[string]bool{}
	err := d.queryEach(ctx, keys, func(scan sqlstore.ScanFunc) error {
		var key sql.NullString
		err := scan(&key)
		found[key.String] = key.Valid
		return err
	}, "marked")
	marked := make([]bool, len(keys))
	for i, key := range keys {
		marked[i] = found[key]
	}
	return marked, err
}

// Keys implements sqlstore.Dialect.
func (d *dialect) Keys(ctx context.Context, prefix, upTo, after []byte, n int) (keys []string, err error) {
	err = d.query(ctx, d.db, func(scan sqlstore.ScanFunc) error { return scanKey(scan, &keys) },
		"keys", prefix, upTo, upTo, after, n)
	return keys, err
}

// scanKey adds a key to others, unless it is NULL.
func scanKey(scan sqlstore.ScanFunc, keys *[]string) error {
	var key sql.NullString
	err := scan(&key)
	if key.Valid {
		*keys = append(*keys, key.String)
	}
	return err
}

// Clean implements sqlstore.Dialect.
func (d *dialect) Clean(ctx context.Context, limit int) (deleted int, err error) {
	var keys []string
	err = d.query(ctx, d.db, func(scan sqlstore.ScanFunc) error { return scanKey(scan, &keys) }, "old", limit)
	if err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(keys, chunkSize) {
		n, err := d.cleanChunk(ctx, chunk)
		deleted += n
		if err != nil && !isRace(err) { // after a race, the next call deletes them
			return deleted, err
		}
	}
	return deleted, nil
}

// cleanChunk deletes old rows, with their gates, unless another transaction has locked them.
func (d *dialect) cleanChunk(ctx context.Context, keys []string) (deleted int, err error) {
	var unlocked []string
	err = d.query(ctx, d.db, func(scan sqlstore.ScanFunc) error { return scanKey(scan, &unlocked) }, "old_lock", keys)
	if err != nil || len(unlocked) == 0 {
		return 0, err
	}
	n, err := d.exec(ctx, d.db, "forget", unlocked) // counts gates as well
	return min(int(n), len(unlocked)), err
}
