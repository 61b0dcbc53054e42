package redisstore

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A keyMode says which keys a server takes in one script.
type keyMode int32

// The mode 0 says that any keys can share a script.
const (
	// oneSlot says that the keys of a script must be in one slot: a Cluster, perhaps behind what
	// looks like one server.
	oneSlot keyMode = 1
	// oneCall says that each call must have a script of its own.
	oneCall keyMode = 2
	// firstKey says that a proxy routes a script by its first key. It comes with oneCall.
	firstKey keyMode = 4
	// unproven says that nothing is known yet, see probe.go.
	unproven keyMode = 8
	// literalKeys says that the server parses scripts, see literal.go. It comes with oneCall.
	literalKeys keyMode = 16
)

// alone reports whether each call has a script of its own.
func (m keyMode) alone() bool { return m&(oneCall|unproven) != 0 }

// stricter returns the mode to try if the server refuses the keys of a script.
func (m keyMode) stricter() keyMode {
	if m&oneSlot == 0 {
		return m | oneSlot
	}
	return m | oneCall
}

// A server is the way to one Redis server, or to a Cluster as a whole.
type server struct {
	client redis.UniversalClient
	mode   atomic.Int32 // a keyMode
	probe  probe
	// moved sends a request that the node of a Cluster has refused to where its key is, or is nil
	moved func(*request, error)

	patience *patience // nil if the client is not known

	// Claims and releases, renewals, and what replicas have to acknowledge. Renewals do not wait
	// behind the others, nor for their connections.
	calls, renewals, acked *batcher
}

// newServer returns the way to the client's server.
func newServer(client redis.UniversalClient) *server {
	s := &server{client: client}
	s.mode.Store(int32(unproven))
	s.calls, s.renewals, s.acked = newBatcher(s, largestBatch), newBatcher(s, largestRenewal), newBatcher(s, largestBatch)
	s.acked.acked = true
	user, ok := client.(*redis.Client)
	if !ok || user == nil {
		return s
	}
	s.patience = newPatience(user)
	pooled := newPooled(user)
	if onlyByPool(user) {
		s.renewals.pooled = pooled
		return s
	}
	// else an open circuit breaker could keep the user's client, and so ours, from connecting
	s.renewals.unlimited = pooled.unlimited
	for range usualWorkers {
		s.calls.conns = append(s.calls.conns, newConnection(user, shortIdle))
	}
	s.renewals.conns = []*connection{newConnection(user, renewalIdle)}
	return s
}

// onlyByPool reports whether everything uses the client's own connections.
//
// If Sentinel chooses the server, go-redis closes these when Sentinel names another one, while the
// old one may live on and accept what comes. Credentials that change reach only these. And if they
// have no read deadlines, ours cannot have any (connections through SSH cannot).
func onlyByPool(user *redis.Client) bool {
	opt := user.Options()
	const noDeadlines = -1 // go-redis turns the -2 that a user gives into this
	return address(user) == behindSentinel || opt.StreamingCredentialsProvider != nil || opt.ReadTimeout == noDeadlines
}

// connections returns those that are not the user's.
func (s *server) connections() []*connection {
	return append(s.calls.conns[:len(s.calls.conns):len(s.calls.conns)], s.renewals.conns...)
}

// close closes the clients of the connections, when these are not in use.
func (s *server) close() {
	for _, c := range s.connections() {
		go c.close()
	}
}

// setUp has the clients of the connections set up before they are used.
func (s *server) setUp(setups []func(*redis.Client)) {
	for _, c := range s.connections() {
		c.setups = setups
	}
}

// setMode adds what was learnt about the server.
func (s *server) setMode(learnt keyMode) {
	for {
		old := s.mode.Load()
		if s.mode.CompareAndSwap(old, int32((keyMode(old)|learnt)&^unproven)) {
			return
		}
	}
}

// batcher returns the batcher for a request.
func (s *server) batcher(r *request) *batcher {
	switch {
	case r.call.Acks.Replicas > 0:
		return s.acked
	case r.call.Op == driver.OpRenew:
		return s.renewals
	default:
		return s.calls
	}
}

// unused reports whether nothing has gone to the server for that time.
func (s *server) unused(d time.Duration) bool {
	return s.calls.unused(d) && s.renewals.unused(d) && s.acked.unused(d)
}

// keysApart reports whether err says that the keys of one script must not be in several slots: a
// Cluster stands behind what looks like one server. Some proxies have words of their own for it.
func keysApart(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "CROSSSLOT") ||
		strings.Contains(strings.ToLower(err.Error()), "same slot"))
}

// Addr returns the server's address, or "" if the client finds its server through Sentinel. A
// Cluster has the addresses that its client was given.
func (s *Store) Addr() string {
	if s.addr == behindSentinel {
		return ""
	}
	return s.addr
}

// bounded runs f and returns what it returns, or the error of ctx when that ends first: by default
// go-redis reads on when a context has ended, for as long as the client's own time-outs say. f is
// then left behind; it ends with those, and nothing looks at what it finds. If a hook of the client
// panics, that is the error.
func bounded(ctx context.Context, f func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	done := make(chan error, 1)
	go contain.Call(func() (struct{}, error) { return struct{}{}, rediserr.Recovered(f) }, func(_ struct{}, err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
