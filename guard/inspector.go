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

var errNoInspector = fmt.Errorf("guard: the backend is no driver.Inspector: %w", errors.ErrUnsupported)

// A boundedInspector checks the arguments of an Inspector, and bounds its calls.
type boundedInspector struct {
	guard *Guard
	set   *settings // with the namespace of the keys
}

// Inspector returns the Inspector of the Guard's backend. It puts the Guard's namespace before
// each key and prefix, and bounds each call by 5 s. Its errors are those of Ledger. A page has from
// 1 to 10,000 keys. Inspector returns false if the backend has none.
func (a Adapter) Inspector() (driver.Inspector, bool) { return a.inspector() }

// Everywhere is Inspector for keys of all namespaces: it takes and returns keys as the store knows
// them.
func (a Adapter) Everywhere() (driver.Inspector, bool) { return a.inspector(WithoutNamespace()) }

func (a Adapter) inspector(opts ...Option) (driver.Inspector, bool) {
	if a.guard.inspector == nil {
		return nil, false
	}
	set, _ := a.guard.set.with(opts)
	return &boundedInspector{a.guard, set}, true
}

// atKey makes a call for a key of the namespace. Without one, it may be a key of any namespace, as
// Keys returns it.
func atKey[T any](
	ctx context.Context, i *boundedInspector, key string, f func(ctx context.Context, stored string) (T, error),
) (result T, err error) {
	stored := driver.JoinNamespace(i.set.namespace, key)
	if err := i.guard.facts.CheckKey(stored); err != nil {
		return result, err
	}
	return bounded(ctx, i.guard, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (T, error) { return f(ctx, stored) })
}

// Show implements driver.Inspector.
func (i *boundedInspector) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	info, err := atKey(ctx, i, key, i.guard.inspector.Show)
	if m := info.Marker; m != nil {
		m.Label, m.Name, m.DoneAt = splitMarker(m.Label)
	}
	return info, err
}

// Keys implements driver.Inspector.
func (i *boundedInspector) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	if err := mustBeFrom(1, maxPage, "n", n, ""); err != nil {
		return nil, "", err
	}
	below := strings.TrimSuffix(driver.JoinNamespace(i.set.namespace, "k"), "k")
	keys, err = bounded(ctx, i.guard, boundedTimeout, driver.OpInspect, prefix, func(ctx context.Context) (keys []string, err error) {
		keys, next, err = i.guard.inspector.Keys(ctx, below+prefix, cursor, n)
		return keys, err
	})
	if err != nil {
		return nil, "", err
	}
	for j, key := range keys {
		keys[j] = strings.TrimPrefix(key, below)
	}
	return keys, next, nil
}

// Break implements driver.Inspector.
func (i *boundedInspector) Break(ctx context.Context, key, id string, b driver.Break) (broken bool, err error) {
	return atKey(ctx, i, key, func(ctx context.Context, stored string) (bool, error) {
		return i.guard.inspector.Break(ctx, stored, id, b)
	})
}

// Forget implements driver.Inspector.
func (i *boundedInspector) Forget(ctx context.Context, key string) (forgotten bool, err error) {
	return atKey(ctx, i, key, i.guard.inspector.Forget)
}

// Marked implements driver.Inspector. A key that cannot be one has no marker.
func (i *boundedInspector) Marked(ctx context.Context, keys []string) ([]bool, error) {
	var at []int
	var stored []string
	for j, key := range keys {
		if name, err := i.set.stored(key, i.guard.facts.CheckKey); err == nil {
			at, stored = append(at, j), append(stored, name)
		}
	}
	read, err := inBulk(ctx, i.guard, boundedTimeout, driver.OpInspect, stored, func(ctx context.Context, from, to int) ([]bool, error) {
		return i.guard.inspector.Marked(ctx, stored[from:to])
	})
	if err != nil {
		return nil, err
	}
	marked := make([]bool, len(keys))
	for j, is := range read {
		marked[at[j]] = is
	}
	return marked, nil
}

// Look returns a *BusyError if a call with these options would find the key busy now, as the store
// shows it (driver.Inspector), and nil otherwise. A key with a done marker is not busy. Look takes
// nothing: another call may get the key first. It returns an error that is errors.ErrUnsupported
// if the backend shows no keys, and those of Inspector.
func (a Adapter) Look(ctx context.Context, key string, opts ...Option) error {
	inspector := a.guard.inspector
	if inspector == nil {
		return errNoInspector
	}
	set, stored, err := a.guard.prepare(key, opts)
	if err != nil {
		return err
	}
	info, err := bounded(ctx, a.guard, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (driver.KeyInfo, error) {
		return inspector.Show(ctx, stored)
	})
	if err != nil || info.Marker != nil {
		return err
	}
	queued := len(info.Queue) > 0 && queueMode(set).UsesQueue()
	away := info.Wanted != "" && set.maxHolders > 1
	if !queued && !away && info.Foreign == "" && admits(info.Holders, set) {
		return nil
	}
	busy := &BusyError{Key: key, Left: -1, Foreign: info.Foreign != ""}
	if first := earliest(info.Holders, set); first != nil {
		busy.Left, busy.Label, busy.Foreign = first.Left, first.Label, first.Foreign
	}
	return busy
}

// admits reports whether a claim with these settings could hold the key together with the holders.
// An owner can hold a key several times.
func admits(holders []driver.Holder, set *settings) bool {
	most := max(set.maxHolders, 1)
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
		if first == nil || set.maxHolders > 1 && h.Left < first.Left || set.maxHolders <= 1 && h.Left > first.Left {
			first = h
		}
	}
	return first
}
