package memory

import (
	"context"
	"slices"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Inspector = (*Locker)(nil)

// Show implements driver.Inspector.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	now, err := l.lock(ctx, driver.OpInspect, key)
	if err != nil {
		return driver.KeyInfo{}, err
	}
	defer l.unlock()
	info := l.entry(key, now).Show(now)
	if q := l.queues.byKey[key]; q != nil {
		q.expire(now)
		for _, w := range q.waiters {
			info.Queue = append(info.Queue, w.id)
		}
	}
	return info, nil
}

// Marked implements driver.Inspector.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	now, err := l.lock(ctx, driver.OpInspect, "")
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	all := make([]bool, len(keys))
	for i, key := range keys {
		all[i] = l.entry(key, now).Done
	}
	return all, nil
}

// Keys implements driver.Inspector. The cursor is the last key of the page.
func (l *Locker) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	if _, err := l.lock(ctx, driver.OpInspect, prefix); err != nil {
		return nil, "", err
	}
	defer l.unlock()
	for key := range l.keys {
		if strings.HasPrefix(key, prefix) && key > cursor {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if n = max(n, 1); len(keys) > n {
		keys = keys[:n:n]
		next = keys[n-1]
	}
	return keys, next, nil
}

// Break implements driver.Inspector.
func (l *Locker) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	return l.operate(ctx, key, func(e *entry) (bool, holders.Effect) { return e.Break(id, b) })
}

// Forget implements driver.Inspector.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	return l.operate(ctx, key, func(e *entry) (bool, holders.Effect) { return e.Forget() })
}

// operate changes a key for an operator. It notifies the queue of a key that f has freed.
func (l *Locker) operate(
	ctx context.Context, key string, f func(e *entry) (changed bool, _ holders.Effect),
) (bool, error) {
	now, err := l.lock(ctx, driver.OpInspect, key)
	if err != nil {
		return false, err
	}
	defer l.unlock()
	e := l.entry(key, now)
	changed, effect := f(e)
	l.plan(e)
	if effect == holders.Freed && l.queues.byKey[key] != nil && e.IsShared() {
		l.queues.of(key, now).next(&l.queues, "", now)
	}
	return changed, nil
}
