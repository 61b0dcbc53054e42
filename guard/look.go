package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-1795987d/onerun/guard/driver"
)

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
