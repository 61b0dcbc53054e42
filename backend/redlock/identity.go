package redlock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// askAgain is the pause between two requests for a server's identity, once a majority is
	// known.
	askAgain = time.Second
	// identifyGrace is how long the other nodes have to state their identity after the first
	// majority did. Two of them may be one server.
	identifyGrace = 100 * time.Millisecond
	// identifyTimeout bounds a request for an identity that outlives the call that made it.
	identifyTimeout = 30 * time.Second
)

// identities holds the identities of the nodes' servers. When the Locker is first used, a majority
// must be reachable, and no two nodes may be the same server.
type identities struct {
	complete atomic.Bool // all identities are known, and different

	mu   sync.Mutex
	ids  map[*node]string // of the known nodes; empty if the server states none
	next time.Time        // when to ask the unknown nodes again
	err  error
}

// verify asks the servers for their identities until all are known. It returns an error if the
// nodes cannot be used. It returns soon after a majority has answered, and at once if a majority
// has answered before.
func (l *Locker) verify(ctx context.Context, key string) error {
	if l.identities.complete.Load() {
		return nil
	}
	ask, err := l.unidentified()
	if err != nil || len(ask) == 0 {
		return err
	}
	before, spare := len(l.nodes)-len(ask), len(l.nodes)-l.quorum
	got := gather(ctx, ask, identifyTimeout, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, l.identify(ctx, n, key)
	}, func(got []reply[struct{}], late bool) (bool, time.Duration) {
		if n := answered(got); before+n < l.quorum {
			return len(got)-n > spare, 0
		}
		return before >= l.quorum || late, identifyGrace
	})
	if _, err = l.unidentified(); err == nil && before+answered(got) < l.quorum {
		err = noQuorum(ctx, driver.OpAcquire, key, ask, got)
	}
	return err
}

// unidentified returns the nodes that should be asked. Once a majority is known, it returns none
// for some time after each request. It returns an error if the nodes cannot be used.
func (l *Locker) unidentified() (ask []*node, err error) {
	p := &l.identities
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ids) >= l.quorum && time.Now().Before(p.next) {
		return nil, p.err
	}
	p.next = time.Now().Add(askAgain)
	for _, n := range l.nodes {
		if _, known := p.ids[n]; !known {
			ask = append(ask, n)
		}
	}
	return ask, p.err
}

// identify asks a node's server for its identity.
func (l *Locker) identify(ctx context.Context, n *node, key string) (err error) {
	id := ""
	if n.facts.ServerID != nil {
		if id, err = n.facts.ServerID(ctx); err != nil {
			return err
		}
	}
	p := &l.identities
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range l.nodes {
		if other != n && id != "" && p.ids[other] == id {
			first, second := l.nodes[min(other.index, n.index)], l.nodes[max(other.index, n.index)]
			p.err = &driver.StoreError{Backend: "redlock", Op: driver.OpAcquire, Key: key, Kind: driver.KindSettings, Err: fmt.Errorf(
				"nodes %d and %d are one server (%s and %s), which would vote twice",
				first.index+1, second.index+1, first.facts.Addr, second.facts.Addr)}
		}
	}
	p.ids[n] = id
	p.complete.Store(len(p.ids) == len(l.nodes) && p.err == nil)
	return nil
}
