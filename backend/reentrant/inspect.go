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

	inspection          = newInspection(surveySource+rlockSource+"local FREE, timeout = '0', nil\n", 0)
	readWriteInspection = newInspection(readWriteSource+"local FREE = '1'\n", 2)
)

func newInspection(common string, timeouts int) *redisstore.Inspection {
	show := redisstore.Operation{Source: sharedSource + wantedSource + showSource, Keys: 2, FurtherKeys: 3, Shared: 1, Publishes: true}
	breaks := redisstore.Operation{
		Source: common + nextSource + breakSource, Keys: 2, FurtherKeys: timeouts, Args: 1, Shared: 3, Publishes: true,
	}
	return redisstore.NewInspection(constants+redisstore.TimesSource+holdsSource, show, breaks)
}

// Show implements driver.Inspector. It shows locks of Redisson's as holders (Holder.Foreign), which
// have no fence. It needs the right to PUBSUB for KeyInfo.Subscribers, which also counts
// Redisson's.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	call := l.inspectCall(key, l.inspection().Show)
	call.Shared[0] = l.howToPublish()
	call.FurtherKeys = append([]string{redisstore.WantedKey(call.Slot, key)}, redisstore.QueueKeys(call.Slot, key)...)
	return l.store.Show(ctx, call)
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

// Break implements driver.Inspector. With Now, it also ends a hold of Redisson's, as forceUnlock
// does for a whole lock.
func (l *Locker) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	what := "keep"
	if b.Now {
		what = "now"
	}
	return l.breaks(ctx, key, id, what, b)
}

// Forget implements driver.Inspector.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	return l.breaks(ctx, key, "", "forget", driver.Break{})
}

func (l *Locker) breaks(ctx context.Context, key, id, what string, b driver.Break) (bool, error) {
	call := l.inspectCall(key, l.inspection().Break)
	call.Args[0], call.Shared = id, [...]string{l.howToPublish(), what, b.ID + "\n" + b.Label}
	if l.readWrite {
		call.FurtherKeys = []string{timeoutKey(driver.Claim{Key: key, ID: id}), timeoutKey(driver.Claim{Key: key, ID: b.ID})}
	}
	done, err := l.store.Int(ctx, l.queue.Notify(call))
	return done == 1, err
}

func (l *Locker) inspection() *redisstore.Inspection {
	if l.readWrite {
		return readWriteInspection
	}
	return inspection
}

func (l *Locker) inspectCall(key string, script *redisstore.Script) redisstore.Call {
	return redisstore.Call{
		Op: driver.OpInspect, Key: key, Script: script, Names: l.names(driver.OpInspect, key),
	}
}
