package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// maxPage is the largest number of keys in a page.
const maxPage = 10000

// A boundedInspector checks the arguments of an Inspector, and bounds its calls.
type boundedInspector struct {
	guard     *Guard
	inspector driver.Inspector
	opts      []Option // the options of each call
}

// Inspector returns the Inspector of the Guard's backend. It puts the Guard's namespace before
// each key and prefix, and bounds each call by 5 s. Its errors are those of Ledger. A page has from
// 1 to 10,000 keys. Inspector returns false if the backend has none.
func (a Adapter) Inspector() (driver.Inspector, bool) {
	i, ok := driver.Ability[driver.Inspector](a.guard.locker)
	if !ok {
		return nil, false
	}
	return &boundedInspector{guard: a.guard, inspector: i}, true
}

// Everywhere is Inspector for keys of all namespaces: it takes and returns keys as the store knows
// them.
func (a Adapter) Everywhere() (driver.Inspector, bool) {
	i, ok := driver.Ability[driver.Inspector](a.guard.locker)
	if !ok {
		return nil, false
	}
	return &boundedInspector{guard: a.guard, inspector: i, opts: []Option{WithoutNamespace()}}, true
}

// stored returns the key by which the store knows a key of the Guard's namespace. Without one, it
// may be a key of any namespace, as Keys returns it.
func (i *boundedInspector) stored(key string) (string, error) {
	set, err := i.guard.set.with(i.opts)
	if err != nil {
		return "", err
	}
	stored := driver.JoinNamespace(set.namespace, key)
	return stored, i.guard.facts.CheckKey(stored)
}

// Show implements driver.Inspector.
func (i *boundedInspector) Show(ctx context.Context, key string) (info driver.KeyInfo, err error) {
	stored, err := i.stored(key)
	if err != nil {
		return info, err
	}
	err = i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (err error) {
		info, err = i.inspector.Show(ctx, stored)
		return err
	})
	if m := info.Marker; m != nil {
		m.Label, m.Name, m.DoneAt = splitMarker(m.Label)
	}
	return info, err
}

// Keys implements driver.Inspector.
func (i *boundedInspector) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	if n < 1 || n > maxPage {
		return nil, "", &SettingError{Setting: "n", Value: fmt.Sprint(n), Reason: fmt.Sprintf("must be from 1 to %d", maxPage)}
	}
	set, err := i.guard.set.with(i.opts)
	if err != nil {
		return nil, "", err
	}
	below := strings.TrimSuffix(driver.JoinNamespace(set.namespace, "k"), "k")
	var refused *SettingError
	err = i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, prefix, func(ctx context.Context) error {
		keys, next, err = i.inspector.Keys(ctx, below+prefix, cursor, n)
		if errors.As(err, &refused) {
			return nil // the store was not asked
		}
		return err
	})
	if refused != nil {
		return nil, "", refused
	}
	for j, key := range keys {
		keys[j] = strings.TrimPrefix(key, below)
	}
	return keys, next, err
}

// Break implements driver.Inspector.
func (i *boundedInspector) Break(ctx context.Context, key, id string, b driver.Break) (broken bool, err error) {
	stored, err := i.stored(key)
	if err != nil {
		return false, err
	}
	err = i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (err error) {
		broken, err = i.inspector.Break(ctx, stored, id, b)
		return err
	})
	return broken && err == nil, err
}

// Forget implements driver.Inspector.
func (i *boundedInspector) Forget(ctx context.Context, key string) (forgotten bool, err error) {
	stored, err := i.stored(key)
	if err != nil {
		return false, err
	}
	err = i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (err error) {
		forgotten, err = i.inspector.Forget(ctx, stored)
		return err
	})
	return forgotten && err == nil, err
}

// Marked implements driver.Inspector. A key that cannot be one has no marker.
func (i *boundedInspector) Marked(ctx context.Context, keys []string) ([]bool, error) {
	marked := make([]bool, len(keys))
	var at []int
	var stored []string
	for j, key := range keys {
		if _, name, err := i.guard.prepare(key, i.opts); err == nil {
			at, stored = append(at, j), append(stored, name)
		}
	}
	for from := 0; from < len(stored); from += maxBulk {
		some := stored[from:min(from+maxBulk, len(stored))]
		err := i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, keys[at[from]], func(ctx context.Context) error {
			read, err := i.inspector.Marked(ctx, some)
			for j, is := range read {
				marked[at[from+j]] = is
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return marked, nil
}

// Look returns a *BusyError if a call with these options would find the key busy now, as the store
// shows it (driver.Inspector), and nil otherwise. A key with a done marker is not busy. Look takes
// nothing: another call may get the key first. It returns an error that is errors.ErrUnsupported
// if the backend shows no keys, and those of Inspector.
func (a Adapter) Look(ctx context.Context, key string, opts ...Option) error {
	inspector, ok := driver.Ability[driver.Inspector](a.guard.locker)
	if !ok {
		return fmt.Errorf("guard: the backend is no driver.Inspector: %w", errors.ErrUnsupported)
	}
	set, stored, err := a.guard.prepare(key, opts)
	if err != nil {
		return err
	}
	var info driver.KeyInfo
	err = a.guard.bounded(ctx, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (err error) {
		info, err = inspector.Show(ctx, stored)
		return err
	})
	if err != nil || info.Marker != nil {
		return err
	}
	queued := len(info.Queue) > 0 && queueMode(set) != driver.Unqueued
	away := info.Wanted != "" && set.among > 1
	if !queued && !away && info.Foreign == "" && admits(info.Holders, set) {
		return nil
	}
	busy := &BusyError{Key: key, Left: -1, Foreign: info.Foreign != ""}
	if first := earliest(info.Holders, set); first != nil {
		busy.Left, busy.Label, busy.Foreign = first.Left, first.Label, first.Foreign
	}
	return busy
}

// admits reports whether a claim with these settings could hold the key beside the holders. An
// owner can hold a key several times.
func admits(holders []driver.Holder, set *settings) bool {
	most := max(set.among, 1)
	for _, h := range holders {
		if set.owner != "" && h.Owner == set.owner {
			return true
		}
		most = min(most, max(h.MaxHolders, 1))
	}
	return len(holders) < most
}

// earliest returns the holder after whose end a claim may be granted: the first one, or the last
// one if the claim is for the key alone.
func earliest(holders []driver.Holder, set *settings) (first *driver.Holder) {
	for i := range holders {
		h := &holders[i]
		if first == nil || set.among > 1 && h.Left < first.Left || set.among <= 1 && h.Left > first.Left {
			first = h
		}
	}
	return first
}
