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
	"sync"
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
	waiters    sync.Pool
	probes     *probes
	identities identities
	calls      []func(context.Context, guard.CallEvent) // of hooks
	err        error

	repeating atomic.Int32 // releases that are repeated in the background
}

var (
	_ driver.Locker       = (*Locker)(nil)
	_ driver.Describer    = (*Locker)(nil)
	_ driver.BatchRenewer = (*Locker)(nil)
	_ driver.Warner       = (*Locker)(nil)
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
	l.probes = newProbes(l.nodes)
	l.identities.ids, l.identities.known = make([]string, len(nodes)), make([]bool, len(nodes))
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
			l.calls = append(l.calls, h.Call)
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
	addrs := map[string]int{}
	for i, n := range nodes {
		if isNil(n) {
			return refused(fmt.Sprintf("number %d", i+1), "must not be nil")
		}
		facts := driver.Describe(n)
		if facts.Err != nil {
			return fmt.Errorf("redlock: node %d: %w", i+1, facts.Err)
		}
		for j, other := range nodes[:i] {
			if same(n, other) {
				return refused(fmt.Sprintf("numbers %d and %d", j+1, i+1), "must not be the same Locker: it would vote twice")
			}
		}
		if facts.Addr != "" {
			if j, twice := addrs[facts.Addr]; twice {
				return refused(fmt.Sprintf("numbers %d and %d", j+1, i+1),
					"must not be on the same server, "+facts.Addr+": it would vote twice")
			}
			addrs[facts.Addr] = i
		}
	}
	return nil
}

func same(a, b driver.Locker) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

func isNil(l driver.Locker) bool {
	if l == nil {
		return true
	}
	v := reflect.ValueOf(l)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Describe implements driver.Describer. The Locker keeps owners if one of the nodes does.
func (l *Locker) Describe() driver.Description {
	return driver.Description{
		Name: "redlock", Err: l.err, CheckKey: l.checkKey, Shares: l.checkSharing,
		Owners: slices.ContainsFunc(l.nodes, func(n *node) bool { return n.facts.Owners }),
	}
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
func (l *Locker) Warnings(ctx context.Context) []error {
	r := gather(ctx, l, l.nodes, identifyTimeout, each(func(_ context.Context, n *node) ([]error, error) {
		w, ok := n.Locker.(driver.Warner)
		if !ok {
			return nil, nil
		}
		return w.Warnings(ctx), nil
	}), func(*replies[[]error], bool) (bool, time.Duration) { return false, 0 })
	for i, err := range r.errs {
		if err != nil && !errors.Is(err, errSilent) {
			r.values[i] = []error{l.nodes[i].named("", "", err)}
		}
	}
	return slices.Concat(r.values...)
}
