package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Inspector = (*Locker)(nil)

// Show implements driver.Inspector.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	if err := ctx.Err(); err != nil {
		return driver.KeyInfo{}, driver.NewStoreError("memory", driver.OpInspect, key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.sweep()
	info := driver.KeyInfo{Time: now, Subscribers: -1}
	if w := l.queues.lines[key]; w != nil {
		w.forget(now)
		for _, p := range w.places {
			info.Queue = append(info.Queue, p.id)
		}
	}
	e := l.entry(key, now)
	switch {
	case e == nil:
		return info, nil
	case e.done:
		h := e.Holders[0]
		info.Marker = &driver.Marker{Label: h.Label, Left: h.Ends.Sub(now), Size: len(e.record)}
		return info, nil
	}
	info.Wanted, info.Holders = e.Wanted.ID, e.Shown(now)
	return info, nil
}

// Marked implements driver.Inspector.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.NewStoreError("memory", driver.OpInspect, "", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.sweep()
	all := make([]bool, len(keys))
	for i, key := range keys {
		e := l.entry(key, now)
		all[i] = e != nil && e.done
	}
	return all, nil
}

// Keys implements driver.Inspector. The cursor is the last key of the page.
func (l *Locker) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", driver.NewStoreError("memory", driver.OpInspect, prefix, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep()
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
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("memory", driver.OpInspect, key, err)
	}
	l.mu.Lock()
	defer l.unlock()
	now := l.sweep()
	e := l.entry(key, now)
	h := e.find(id)
	switch {
	case e == nil || e.done:
		return false, nil
	case b.Now && h != nil:
		l.remove(e, id)
		l.freed(key, now)
		return true, nil
	case h == nil || h.Released:
		return !b.Now && e.find(b.ID) != nil, nil
	}
	h.ID, h.Label, h.Released = b.ID, b.Label, true
	return true, nil
}

// Forget implements driver.Inspector.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("memory", driver.OpInspect, key, err)
	}
	l.mu.Lock()
	defer l.unlock()
	now := l.sweep()
	e := l.entry(key, now)
	if e == nil || !e.done {
		return false, nil
	}
	l.remove(e, e.Holders[0].ID)
	l.freed(key, now)
	return true, nil
}

// freed notifies the queue of a key that an operator has freed. The caller holds l.mu.
func (l *Locker) freed(key string, now time.Time) {
	if l.queues.lines[key] != nil && l.entry(key, now).isShared() {
		l.queues.line(key, now).turn(&l.queues, "", now)
	}
}
