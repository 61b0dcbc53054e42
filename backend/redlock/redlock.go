// Package redlock is a driver.Locker on a quorum of independent stores, after the algorithm that
// the Redis documentation describes as Redlock, with fences.
//
//	nodes := []driver.Locker{single.New(a), single.New(b), single.New(c)}
//	g, err := guard.New(redlock.New(nodes))
//
// A claim that holds the key on a majority of the nodes holds the lease. A minority may be down,
// frozen, slow or empty. A node is any driver.Locker, and must be the only one on its server. If
// all nodes keep owners (backend/reentrant), the quorum keeps owners.
//
// Claims can share a key (guard.WithShared). Limits (guard.WithLimit) are refused: no node knows
// all holders.
//
// A node can forget its leases: a restart without persistence, FLUSHALL, a failover. If it is
// asked again at once, it can make a second majority. The fence then distinguishes the holders,
// and single.WithMinUptime closes the gap for restarts. The clocks of the nodes should show about
// the same time: clocks that differ cost a second round trip for the fence.
package redlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// minNodes is the smallest number of nodes for which a minority can fail.
const minNodes = 3

// A Locker keeps leases on a majority of nodes. It is safe for concurrent use.
//
// Its calls return as soon as a majority has decided. It handles later answers in the background,
// for some seconds at most, and releases leases that are not needed. Close the clients of nodes a
// moment after the Guard. If a release has not reached a slower node by then, that node keeps the
// lease until the TTL has passed.
type Locker struct {
	nodes      []*node
	quorum     int
	clocks     *clocks
	orders     *orders
	contention *contention
	identities identities
	hooks      []func(context.Context, guard.CallEvent)
	err        error

	repeating atomic.Int32 // releases that are repeated in the background
}

var (
	_ driver.Locker    = (*Locker)(nil)
	_ driver.Describer = (*Locker)(nil)
	_ driver.Async     = (*Locker)(nil)
	_ driver.Warner    = (*Locker)(nil)
)

// New returns a Locker on the nodes. A majority is more than half of them, so an even number
// allows no more failures than the odd number below it. guard.New refuses fewer than three nodes,
// nil, and a node that occurs twice.
//
// The first call returns a *driver.StoreError that names the nodes if a majority cannot be
// reached. So does a call after which two nodes are known to be one server under two addresses.
// That is the first call, unless one of the nodes is slow.
func New(nodes []driver.Locker, opts ...Option) *Locker {
	l := &Locker{
		quorum: len(nodes)/2 + 1,
		clocks: newClocks(len(nodes)),
		orders: newOrders(len(nodes)),
		err:    checkNodes(nodes),
	}
	for _, opt := range opts {
		if opt == nil {
			l.err = errors.Join(l.err, &driver.SettingError{Setting: "Option", Value: "nil", Reason: "must not be nil"})
			continue
		}
		opt(l)
	}
	if l.err != nil {
		return l
	}
	for i, n := range nodes {
		l.nodes = append(l.nodes, newNode(l, i, n))
	}
	l.contention = newContention(l.nodes)
	l.identities.ids = map[*node]string{}
	return l
}

// An Option is a setting of New. guard.New refuses one that cannot work.
type Option func(*Locker)

// WithHook reports each call to a node to the hook (guard.Hook.Call, with guard.CallEvent.Node). A
// minority that fails does not show otherwise, because the quorum gets by without it. If a node has
// forgotten a lease that it is to renew, the error is guard.ErrLost. The hook's other functions
// are not called: give it to guard.New as well. It is called concurrently, and must not block. It
// may be used several times. Defaults to none.
func WithHook(h guard.Hook) Option {
	return func(l *Locker) {
		if h.Call != nil {
			l.hooks = append(l.hooks, h.Call)
		}
	}
}

func checkNodes(nodes []driver.Locker) error {
	refused := func(value, reason string) error {
		return &driver.SettingError{Setting: "nodes", Value: value, Reason: reason}
	}
	if len(nodes) < minNodes {
		return refused(fmt.Sprint(len(nodes)), "must be three at least: of fewer, none may fail")
	}
	for i, n := range nodes {
		if driver.IsNil(n) {
			return refused(fmt.Sprintf("number %d", i+1), "must not be nil")
		}
		facts := driver.Describe(n)
		if facts.Err != nil {
			return fmt.Errorf("redlock: node %d: %w", i+1, facts.Err)
		}
		for j, other := range nodes[:i] {
			twice := fmt.Sprintf("numbers %d and %d", j+1, i+1)
			if reflect.ValueOf(n).Comparable() && n == other {
				return refused(twice, "must not be the same Locker: it would vote twice")
			}
			if facts.Addr != "" && facts.Addr == driver.Describe(other).Addr {
				return refused(twice, "must not be on the same server, "+facts.Addr+": it would vote twice")
			}
		}
	}
	return nil
}

// Describe implements driver.Describer. The Locker keeps owners if one of the nodes does.
func (l *Locker) Describe() driver.Description {
	return driver.Description{
		Name: "redlock", Err: l.err, CheckKey: l.checkKey, Shares: l.checkSharing,
		Owners: slices.ContainsFunc(l.nodes, func(n *node) bool { return n.facts.Owners }),
	}
}

// checkSharing returns nil for driver.Unlimited if all nodes can share keys.
// It refuses limits. Each node knows only a part of the holders, so a key with a limit of n could
// have more of them: one for each majority that can be made of n grants on each node.
func (l *Locker) checkSharing(n int) error {
	if n != driver.Unlimited {
		return &driver.SettingError{
			Setting: "WithLimit", Value: strconv.Itoa(n),
			Reason: "cannot be kept on a quorum, as each of its nodes knows only a part of the holders: " +
				"backend/single, reentrant, postgres and memory can",
		}
	}
	for _, node := range l.nodes {
		if node.facts.Shares == nil {
			return &driver.SettingError{
				Setting: "WithShared", Reason: fmt.Sprintf("%s (%T) grants a key to one claim at a time", node.name, node.Locker),
			}
		}
		if err := node.facts.Shares(n); err != nil {
			return fmt.Errorf("redlock: %s: %w", node.name, err)
		}
	}
	return nil
}

// checkKey accepts a key that every node accepts.
func (l *Locker) checkKey(key string) error {
	for _, n := range l.nodes {
		if err := n.facts.CheckKey(key); err != nil {
			return err
		}
	}
	return nil
}

// drift is the difference that is allowed between the clocks of a node and of this process at the
// end of a TTL: 1 % and 2 ms, as in the Redis documentation.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Warnings implements driver.Warner: it asks all nodes at once.
func (l *Locker) Warnings(ctx context.Context) (warnings []error) {
	got := gather(ctx, l.nodes, identifyTimeout, func(ctx context.Context, n *node) (of []error, _ error) {
		if w, ok := n.Locker.(driver.Warner); ok {
			of = w.Warnings(ctx)
		}
		return of, nil
	}, everyone)
	for _, r := range got {
		if r.err != nil {
			warnings = append(warnings, r.node.named("", "", r.err))
		}
		warnings = append(warnings, r.value...)
	}
	return warnings
}

// Close closes the nodes that have Close, see single.Locker.Close. Close the Guards first: releases
// on slow nodes go on for a moment in the background.
func (l *Locker) Close() error {
	var failed []error
	for _, n := range l.nodes {
		failed = append(failed, driver.Close(n.Locker))
	}
	return errors.Join(failed...)
}
