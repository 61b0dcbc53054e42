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
	show := redisstore.Operation{Source: channel + showSource, Keys: 2, FurtherKeys: 5, Shared: 1, Publishes: true}
	breaks := redisstore.Operation{
		Source: d.publishing() + breakSource, Keys: 2, FurtherKeys: 3, Args: 1, Shared: 3, Publishes: true,
	}
	i := redisstore.NewInspection(sharedCommon(d), show, breaks)
	i.Further = func(fence string, claims ...driver.Claim) []string {
		return redisstore.SharingKeys(fence, claims[0].Key)
	}
	return i
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
