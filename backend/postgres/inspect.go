package postgres

import (
	"bytes"
	"context"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Inspector = (*Locker)(nil)

// Show implements driver.Inspector.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	return ask(ctx, l, driver.OpInspect, key, func(ctx context.Context) (info driver.KeyInfo, err error) {
		r, err := l.read(ctx, key)
		if err != nil {
			return info, err
		}
		return r.Show(r.now), nil
	})
}

// Marked implements driver.Inspector.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	key := func(i int) string { return keys[i] }
	return queryEach(ctx, l, driver.OpInspect, keys, key, scanOne[bool], "marked")
}

// Keys implements driver.Inspector. The cursor is the last key of the page.
func (l *Locker) Keys(
	ctx context.Context, prefix, cursor string, n int,
) (keys []string, next string, err error) {
	n = max(n, 1)
	keys, err = ask(ctx, l, driver.OpInspect, prefix, func(ctx context.Context) (keys []string, err error) {
		err = l.query(ctx, func(scan scanFunc) error {
			var key encoded
			err := scan(&key)
			if key != nil {
				keys = append(keys, string(key))
			}
			return err
		}, l.sql("keys"), []byte(prefix), after([]byte(prefix)), []byte(cursor), n)
		return keys, err
	})
	if len(keys) == n {
		next = keys[n-1]
	}
	return keys, next, err
}

// after returns the first key after those that begin with the prefix, or nil if there is none.
func after(prefix []byte) any {
	prefix = bytes.TrimRight(bytes.Clone(prefix), "\xff")
	if len(prefix) == 0 {
		return nil
	}
	prefix[len(prefix)-1]++
	return prefix
}

// Break implements driver.Inspector.
func (l *Locker) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	return l.operate(ctx, key, func(r *row) (bool, holders.Effect) { return r.Break(id, b) })
}

// Forget implements driver.Inspector.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	return l.operate(ctx, key, func(r *row) (bool, holders.Effect) { return r.Forget() })
}

// operate changes a key for an operator.
func (l *Locker) operate(
	ctx context.Context, key string, f func(r *row) (bool, holders.Effect),
) (bool, error) {
	return ask(ctx, l, driver.OpInspect, key, func(ctx context.Context) (bool, error) {
		return change(ctx, l, key, f)
	})
}
