package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Inspection is how a backend shows a key, and takes it from a claim.
//
//	       each call  all calls
//	Show              Publish
//	Break  ID         Publish, what to do, another ID and its label with a newline between them
//
// Show answers what show.lua of backend/single describes, and break.lua says what Break can do.
type Inspection struct {
	Show, Break *Script
	// Further returns the keys that follow those of Layout.Names in the scripts, for claims of one
	// key. For Show, they have no ID, and the keys of the queue follow.
	Further func(fence string, claims ...driver.Claim) []string
}

// NewInspection returns the scripts of these operations. common comes before each of them.
func NewInspection(common string, show, breaks Operation) *Inspection {
	i := &Inspection{Show: show.script(common), Break: breaks.script(common)}
	i.Break.Queued = breaks.queued(common, "leave")
	return i
}

// Show implements driver.Inspector. It needs the right to PUBSUB for KeyInfo.Subscribers. On a
// Cluster of Redis 6, those are not known.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	call := l.inspectCall(l.layout.Inspection.Show, driver.Claim{Key: key})
	call.Shared[0] = l.layout.Publish
	call.FurtherKeys = append(call.FurtherKeys, QueueKeys(call.Slot, key)...)
	answer, err := l.store.run(ctx, &call)
	if err != nil {
		return driver.KeyInfo{}, l.store.error(&call, err)
	}
	info, ok := toKeyInfo(answer)
	if !ok {
		return driver.KeyInfo{}, l.store.error(&call, ErrAnswer)
	}
	return info, nil
}

// Break implements driver.Inspector. With Now, it also ends a hold of another program.
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
	call := l.inspectCall(l.layout.Inspection.Break, driver.Claim{Key: key, ID: id}, driver.Claim{Key: key, ID: b.ID})
	call.Args[0], call.Shared = id, [...]string{l.layout.Publish, what, b.ID + "\n" + b.Label}
	call.Script = call.Script.Queued
	l.queue.release(&call, "") // notifies the first in the queue, if the key is free then
	done, err := l.store.integer(ctx, call)
	return done == 1, err
}

func (l *Locker) inspectCall(script *Script, claims ...driver.Claim) Call {
	key := claims[0].Key
	call := Call{Op: driver.OpInspect, Key: key, Script: script, Names: l.layout.Names(driver.OpInspect, key)}
	call.FurtherKeys = l.layout.Inspection.Further(call.Slot, claims...)
	return call
}

func toKeyInfo(answer any) (driver.KeyInfo, bool) {
	r := &reader{parts: []any{answer}}
	r = r.list()
	clock := r.list()
	info := driver.KeyInfo{Time: time.Unix(clock.number(), clock.number()*int64(time.Microsecond))}
	info.Subscribers = int(r.number())
	info.Foreign, info.Wanted = r.text(), r.text()
	queue := r.list()
	for len(queue.parts) > 0 {
		info.Queue = append(info.Queue, queue.text())
	}
	marker := r.list()
	if len(marker.parts) > 0 {
		info.Marker = &driver.Marker{Label: marker.text(), Left: marker.left(), Size: int(marker.number())}
	}
	holders := r.list()
	bad := r.bad || clock.bad || queue.bad || marker.bad
	for len(holders.parts) > 0 {
		of := holders.list()
		info.Holders = append(info.Holders, driver.Holder{
			ID: of.text(), Owner: of.text(), Label: of.text(),
			Fence: uint64(of.number()), Left: of.left(), //nolint:gosec // a fence is not negative
			MaxHolders: int(of.number()), Seat: int(of.number()), Kept: of.number() == 1, Foreign: of.number() == 1,
		})
		bad = bad || of.bad
	}
	slices.SortFunc(info.Holders, func(a, b driver.Holder) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), strings.Compare(a.ID, b.ID))
	})
	return info, !bad && !holders.bad
}

// A Scan finds keys by the names under which Redis has them.
type Scan struct {
	Prefix  string // of the keys, for errors
	Pattern string // of SCAN
	Type    string // of the keys, or "" for any
	// Key returns the key of a name, or false if the name is not that of a key.
	Key func(name string) (key string, ok bool)
}

// LeaseScan finds the keys of leases (see LeaseKeys) that begin with the prefix.
func LeaseScan(prefix string) Scan {
	return Scan{
		Prefix:  prefix,
		Pattern: "onerun:{*}:lease:" + Literal(prefix) + "*",
		Key: func(name string) (string, bool) {
			_, key, ok := strings.Cut(name, "}:lease:")
			return key, ok
		},
	}
}

// Literal returns a pattern of SCAN for the text itself.
func Literal(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `\`, `\\`).Replace(text)
}

const (
	scanCount = 1000 // names that the server looks at in one SCAN
	scanCalls = 100  // for one page
)

// Keys is driver.Inspector's Keys. It looks at up to 100,000 names for a page.
func (s *Store) Keys(ctx context.Context, scan Scan, cursor string, n int) (keys []string, next string, err error) {
	c := Call{Op: driver.OpInspect, Key: scan.Prefix}
	nodes, err := s.masters(ctx)
	if err != nil {
		return nil, "", s.error(&c, err)
	}
	at, position, err := findCursor(nodes, cursor)
	if err != nil {
		return nil, "", err
	}
	for calls := 0; calls < scanCalls && at < len(nodes) && len(keys) < max(n, 1); calls++ {
		var names []string
		args := []any{"scan", position, "match", scan.Pattern, "count", scanCount}
		if scan.Type != "" {
			args = append(args, "type", scan.Type)
		}
		cmd := redis.NewScanCmd(ctx, nil, args...)
		if err = bounded(ctx, func() error { return nodes[at].client.Process(ctx, cmd) }); err != nil {
			return nil, "", s.error(&c, err)
		}
		names, position = cmd.Val()
		for _, name := range names {
			if key, ok := scan.Key(name); ok {
				keys = append(keys, key)
			}
		}
		if position == 0 {
			at++
		}
	}
	if at == len(nodes) {
		return keys, "", nil
	}
	return keys, nodes[at].addr + " " + strconv.FormatUint(position, 10), nil
}

// A master is a server that has a part of the keys.
type master struct {
	addr   string // "" if it is the only one
	client redis.UniversalClient
}

// masters returns the masters of a Cluster in the order of their addresses, or the only server.
func (s *Store) masters(ctx context.Context) ([]master, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []master{{client: s.client}}, nil
	}
	var mu sync.Mutex
	var all []master
	err := bounded(ctx, func() error {
		return cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, master{node.Options().Addr, node})
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(all, func(a, b master) int { return strings.Compare(a.addr, b.addr) })
	return all, nil
}

// findCursor returns the index of the master at which a page begins, and its cursor of SCAN. If
// that master has left, the page begins at the next one.
func findCursor(nodes []master, cursor string) (at int, position uint64, err error) {
	if cursor == "" {
		return 0, 0, nil
	}
	addr, text, _ := strings.Cut(cursor, " ")
	if position, err = strconv.ParseUint(text, 10, 64); err != nil {
		return 0, 0, &driver.SettingError{Setting: "cursor", Value: cursor, Reason: "is not one that this backend has returned"}
	}
	at, found := slices.BinarySearchFunc(nodes, addr, func(m master, addr string) int { return strings.Compare(m.addr, addr) })
	if !found {
		position = 0
	}
	return at, position, nil
}
