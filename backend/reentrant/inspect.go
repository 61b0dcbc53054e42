package reentrant

import (
	"context"
	_ "embed"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Inspector = (*Locker)(nil)

var (
	//go:embed show.lua
	showSource string
	//go:embed marked.lua
	markedSource string
	//go:embed break.lua
	breakSource string

	inspection          = newInspection(surveySource+rlockSource+"local FREE, timeout = '0', nil\n", false)
	readWriteInspection = newInspection(readWriteSource+"local FREE = '1'\n", true)
)

func newInspection(common string, readWrite bool) *redisstore.Inspection {
	show := redisstore.Operation{
		Source: sharedSource + wantedSource + showSource, Keys: 2, FurtherKeys: 3, Shared: 1, Publishes: true,
	}
	breaks := redisstore.Operation{
		Source: common + nextSource + breakSource, Keys: 2, FurtherKeys: 1, Args: 1, Shared: 3, Publishes: true,
	}
	if readWrite {
		breaks.FurtherKeys += 2
	}
	i := redisstore.NewInspection(constants+redisstore.TimesSource+holdsSource, show, breaks)
	i.Further = func(fence string, claims ...driver.Claim) []string {
		keys := []string{redisstore.WantedKey(fence, claims[0].Key)}
		for _, c := range claims {
			if readWrite && len(claims) > 1 {
				keys = append(keys, timeoutKey(c))
			}
		}
		return keys
	}
	return i
}

// Marked implements driver.Inspector.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	return l.store.Evals(ctx, keys, markedSource)
}

// Keys implements driver.Inspector, by SCAN for hashes. It may return hashes of other programs, and
// locks of Redisson's. A cursor belongs to one master of a Cluster, and the masters follow each
// other by their addresses.
func (l *Locker) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	return l.store.Keys(ctx, redisstore.Scan{
		Prefix: prefix, Pattern: redisstore.Literal(prefix) + "*", Type: "hash",
		Key: func(name string) (string, bool) { return name, !strings.HasPrefix(name, "onerun:{") },
	}, cursor, n)
}

func (l *Locker) inspection() *redisstore.Inspection {
	if l.readWrite {
		return readWriteInspection
	}
	return inspection
}
