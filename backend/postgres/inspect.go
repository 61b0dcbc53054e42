package postgres

import (
	"bytes"
	"context"

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
		info = driver.KeyInfo{Time: r.now, Subscribers: -1, Wanted: r.Wanted.ID}
		if r.done {
			h := r.Holders[0]
			info.Marker = &driver.Marker{
				Label: h.Label, Left: h.Ends.Sub(r.now), Size: len(r.record),
			}
			return info, nil
		}
		info.Holders = r.Shown(r.now)
		return info, nil
	})
}

// Marked implements driver.Inspector.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	of := func(i int) []byte { return []byte(keys[i]) }
	return askAll(ctx, l, driver.OpInspect, keys, of, func(scan func(...any) error, all []bool) error {
		var standby, is bool
		var i int
		err := scan(&standby, &i, &is)
		if err == nil && standby {
			return errStandby
		}
		if err == nil {
			all[i-1] = is
		}
		return err
	}, func(s *statements) string { return s.marked })
}

// Keys implements driver.Inspector. The cursor is the last key of the page.
func (l *Locker) Keys(
	ctx context.Context, prefix, cursor string, n int,
) (keys []string, next string, err error) {
	n = max(n, 1)
	keys, err = ask(ctx, l, driver.OpInspect, prefix, func(ctx context.Context) (keys []string, err error) {
		err = l.query(ctx, func(scan func(...any) error) error {
			var standby bool
			var key encoded
			err := scan(&standby, &key)
			switch {
			case err == nil && standby:
				return errStandby
			case key != nil:
				keys = append(keys, string(key))
			}
			return err
		}, l.sql().keys, []byte(prefix), after([]byte(prefix)), []byte(cursor), n)
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
	return l.operate(ctx, key, func(r *row) (e effect, answer bool) {
		h := r.Find(id)
		switch {
		case r.done:
			return nothing, false
		case b.Now && h != nil:
			r.Remove(id)
			return freed, true
		case h == nil || h.Released:
			return nothing, !b.Now && r.Find(b.ID) != nil
		}
		h.ID, h.Label, h.Released = b.ID, b.Label, true
		return changed, true
	})
}

// Forget implements driver.Inspector.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	return l.operate(ctx, key, func(r *row) (e effect, answer bool) {
		if !r.done {
			return nothing, false
		}
		r.Holders, r.done, r.record = nil, false, nil
		return freed, true
	})
}

// operate changes a key for an operator.
func (l *Locker) operate(
	ctx context.Context, key string, f func(r *row) (e effect, answer bool),
) (bool, error) {
	return ask(ctx, l, driver.OpInspect, key, func(ctx context.Context) (answer bool, err error) {
		written, err := l.change(ctx, key, func(r *row) (e effect) {
			e, answer = f(r)
			return e
		})
		if err == nil && !written {
			err = errRaces
		}
		return answer, err
	})
}
