package sqlstore

import (
	"bytes"
	"context"
	"slices"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Show implements driver.Inspector.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	return Ask(ctx, l, driver.OpInspect, key, func(ctx context.Context) (driver.KeyInfo, error) {
		return change(ctx, l, key, func(r *Row) (driver.KeyInfo, holders.Effect) { return r.Show(r.Now), holders.Nothing })
	})
}

// Marked implements driver.Inspector.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	keys = slices.Clone(keys) // the statement may outlast the call
	return Ask(ctx, l, driver.OpInspect, keys[0], func(ctx context.Context) ([]bool, error) {
		return l.dialect.Marked(ctx, keys)
	})
}

// Keys implements driver.Inspector. The cursor is the last key of the page.
func (l *Locker) Keys(
	ctx context.Context, prefix, cursor string, n int,
) (keys []string, next string, err error) {
	n = max(n, 1)
	keys, err = Ask(ctx, l, driver.OpInspect, prefix, func(ctx context.Context) ([]string, error) {
		return l.dialect.Keys(ctx, []byte(prefix), after([]byte(prefix)), []byte(cursor), n)
	})
	if len(keys) == n {
		next = keys[n-1]
	}
	return keys, next, err
}

// after returns the first key after those that begin with the prefix, or nil if there is none.
func after(prefix []byte) []byte {
	prefix = bytes.TrimRight(bytes.Clone(prefix), "\xff")
	if len(prefix) == 0 {
		return nil
	}
	prefix[len(prefix)-1]++
	return prefix
}

// Break implements driver.Inspector.
func (l *Locker) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	return l.operate(ctx, key, func(r *Row) (bool, holders.Effect) { return r.Break(id, b) })
}

// Forget implements driver.Inspector.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	return l.operate(ctx, key, func(r *Row) (bool, holders.Effect) { return r.Forget() })
}

// operate changes a key for an operator.
func (l *Locker) operate(
	ctx context.Context, key string, f func(r *Row) (bool, holders.Effect),
) (bool, error) {
	return Ask(ctx, l, driver.OpInspect, key, func(ctx context.Context) (bool, error) {
		return change(ctx, l, key, f)
	})
}
