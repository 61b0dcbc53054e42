package single

import (
	"context"
	_ "embed"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Inspector = (*Locker)(nil)

var (
	//go:embed show.lua
	showSource string
	//go:embed break.lua
	breakSource string
)

func newInspection(d dialect) *redisstore.Inspection {
	channel := "local channel = " + d.channel("lease") + "\n"
	show := redisstore.Operation{Source: channel + showSource, Keys: 2, FurtherKeys: 5, Publishes: true}
	breaks := redisstore.Operation{
		Source: d.publishing() + breakSource, Keys: 2, FurtherKeys: 3, Args: 1, Shared: 3, Publishes: true,
	}
	return redisstore.NewInspection(sharedCommon(d), show, breaks)
}

// Show implements driver.Inspector. It needs the right to PUBSUB for KeyInfo.Subscribers. On a
// Cluster of Redis 6, those are not known.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	call := l.inspectCall(key, l.inspection.Show)
	call.FurtherKeys = append(call.FurtherKeys, redisstore.QueueKeys(call.Slot, key)...)
	return l.store.Show(ctx, call)
}

// Marked implements driver.Inspector.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	if l.name != nil {
		return l.store.Begins(ctx, keys, l.name, lead+"D")
	}
	lease := func(key string) string { name, _ := redisstore.LeaseKeys(key); return name }
	return l.store.Begins(ctx, keys, lease, "D")
}

// Keys implements driver.Inspector, by SCAN. WithPlainKeys, it may return strings of other
// programs, and a *driver.SettingError if names do not contain their keys. A cursor belongs to one
// master of a Cluster, and the masters follow each other by their addresses.
func (l *Locker) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	scan := redisstore.LeaseScan(prefix)
	if l.name != nil {
		if scan, err = l.plainScan(prefix); err != nil {
			return nil, "", err
		}
	}
	return l.store.Keys(ctx, scan, cursor, n)
}

// Break implements driver.Inspector.
func (l *Locker) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	what := "keep"
	if b.Now {
		what = "now"
	}
	return l.breaks(ctx, key, id, [...]string{what, b.ID, b.Label})
}

// Forget implements driver.Inspector.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	return l.breaks(ctx, key, "", [...]string{"forget", "", ""})
}

func (l *Locker) breaks(ctx context.Context, key, id string, shared [3]string) (bool, error) {
	call := l.inspectCall(key, l.inspection.Break)
	call.Args[0], call.Shared = id, shared
	done, err := l.store.Int(ctx, l.queue.Notify(call))
	return done == 1, err
}

func (l *Locker) inspectCall(key string, script *redisstore.Script) redisstore.Call {
	names := l.names(driver.OpInspect, key)
	return redisstore.Call{
		Op: driver.OpInspect, Key: key, Script: script, Names: names,
		FurtherKeys: redisstore.SharingKeys(names.Slot, key),
	}
}
