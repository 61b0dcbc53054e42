package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
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

	mu    sync.Mutex
	ids   []string // of the known nodes; empty if the server states none
	known []bool
	count int
	next  time.Time // when to ask the unknown nodes again
	err   error
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
	before, _ := l.identities.majority(l.quorum)
	r := gather(ctx, l, ask, identifyTimeout, each(func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, l.identify(ctx, n, key)
	}), func(r *replies[struct{}], late bool) (bool, time.Duration) {
		enough, err := l.identities.majority(l.quorum)
		if err != nil || r.failed > len(l.nodes)-l.quorum || enough && (before || late) {
			return true, 0
		}
		if enough {
			return false, identifyGrace
		}
		return false, 0
	})
	enough, err := l.identities.majority(l.quorum)
	if err == nil && !enough {
		err = l.noQuorum(driver.OpAcquire, key, r.errs)
	}
	return err
}

// unidentified returns the nodes whose identity is not known and should be asked for.
func (l *Locker) unidentified() (ask []*node, err error) {
	p := &l.identities
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.count >= l.quorum && time.Now().Before(p.next) {
		return nil, p.err
	}
	p.next = time.Now().Add(askAgain)
	for i, n := range l.nodes {
		if !p.known[i] {
			ask = append(ask, n)
		}
	}
	return ask, nil
}

// identify asks a node's server for its identity.
func (l *Locker) identify(ctx context.Context, n *node, key string) error {
	id := ""
	if n.facts.ServerID != nil {
		var err error
		if id, err = contain.Do(func() (string, error) { return n.facts.ServerID(ctx) }); err != nil {
			return withKey(err, key)
		}
	}
	p := &l.identities
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[n.index] {
		return nil
	}
	for i, other := range p.ids {
		if id != "" && other == id {
			first, second := l.nodes[min(i, n.index)], l.nodes[max(i, n.index)]
			p.err = &driver.StoreError{Backend: "redlock", Op: driver.OpAcquire, Key: key, Kind: driver.KindSettings, Err: fmt.Errorf(
				"nodes %d and %d are one server (%s and %s), which would vote twice",
				first.index+1, second.index+1, first.facts.Addr, second.facts.Addr)}
		}
	}
	p.ids[n.index], p.known[n.index] = id, true
	p.count++
	p.complete.Store(p.count == len(p.ids) && p.err == nil)
	return nil
}

// withKey returns err with the key of the call that asked for the identity.
func withKey(err error, key string) error {
	var failed *driver.StoreError
	if !errors.As(err, &failed) {
		return err
	}
	named := *failed
	named.Key = key
	return &named
}

// majority reports whether enough servers are known, and returns an error if they cannot be used.
func (p *identities) majority(quorum int) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count >= quorum, p.err
}
