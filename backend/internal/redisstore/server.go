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
	// moved sends a request that a node of a Cluster has refused to the master of its key. It is
	// nil without a Cluster.
	moved func(*request, error)

	patience *patience // nil if the client is not known

	// acked sends what replicas have to acknowledge. Renewals wait neither behind other requests
	// nor for their lanes.
	calls, acked *batcher
	renewals     *renewer
}

// newServer returns the way to the client's server.
func newServer(client redis.UniversalClient) *server {
	s := &server{client: client}
	s.mode.Store(int32(unproven))
	s.calls, s.acked, s.renewals = newBatcher(s), newBatcher(s), &renewer{server: s}
	app, ok := client.(*redis.Client)
	if !ok || app == nil {
		return s
	}
	s.patience = newPatience(app)
	switch {
	case !onlyByPool(app):
		for range normalWorkers {
			s.calls.lanes = append(s.calls.lanes, newLane(app, shortIdle))
		}
		s.renewals.lane = newLane(app, renewalIdle)
	case poolSize(app) > 1:
		s.renewals.lane = newLane(app, renewalIdle)
		s.renewals.lane.pool = s.patience.unlimited
	}
	return s
}

// onlyByPool reports whether all connections must be those of the application's client.
//
// If Sentinel chooses the server, go-redis closes these when Sentinel names another one. The old
// one may live on, and accept what comes on other connections. Credentials that change reach only
// the client's connections. And without read deadlines there, a lane cannot have any (connections
// through SSH cannot).
func onlyByPool(app *redis.Client) bool {
	opt := app.Options()
	const noDeadlines = -1 // go-redis turns the -2 of a user into this
	return address(app) == behindSentinel || opt.StreamingCredentialsProvider != nil || opt.ReadTimeout == noDeadlines
}

// lanes returns all lanes of the server.
func (s *server) lanes() []*lane {
	if s.renewals.lane == nil {
		return nil
	}
	return append(s.calls.lanes[:len(s.calls.lanes):len(s.calls.lanes)], s.renewals.lane)
}

// close closes the lanes when they are not in use.
func (s *server) close() {
	for _, l := range s.lanes() {
		l.close()
	}
}

// setUp has own clients set up before they are used.
func (s *server) setUp(setups []func(*redis.Client)) {
	for _, l := range s.lanes() {
		l.setups = setups
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

// add sends requests of one kind, together if that is possible. Each is finished once: soon after
// its context has ended if the server answers other requests, and at the latest if the client gives
// up.
func (s *server) add(requests ...*request) {
	switch call := &requests[0].call; {
	case call.Op == driver.OpRenew:
		s.renewals.add(requests...)
	case call.Acks.Replicas > 0:
		s.acked.add(requests...)
	default:
		s.calls.add(requests...)
	}
}

// addDirect sends a request from the caller's own goroutine if nothing else is under way, and
// returns false otherwise.
func (s *server) addDirect(r *request) bool {
	return r.call.Acks.Replicas == 0 && s.calls.sendDirect(r)
}

// unused reports whether nothing has gone to the server for that time.
func (s *server) unused(d time.Duration) bool {
	return s.calls.unused(d) && s.renewals.unused(d) && s.acked.unused(d)
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

// behindSentinel is the address of a server that is found through Sentinel.
const behindSentinel = "sentinel"

// address returns the address of the server, or of several servers, for errors.
func address(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		if addr := c.Options().Addr; addr != "FailoverClient" { // go-redis' name for Sentinel
			return addr
		}
		return behindSentinel
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	}
	return ""
}

// sendOn sends a batch on a lane that the caller has taken, and releases the lane.
func (s *server) sendOn(ctx context.Context, l *lane, batch []*request) {
	err := errAborted // unless sendSafely returns
	defer func() { l.release(err) }()
	if l.pool == nil {
		err = s.sendSafely(noDone{ctx}, l.conn, &l.sender, batch)
		return
	}
	ctx, cancel := withDeadline(ctx, l.app)
	defer cancel()
	err = s.sendSafely(ctx, l.conn, &l.sender, batch)
}

// sendByApp sends a batch by the application's client, or on its pool by a client that is patient.
func (s *server) sendByApp(ctx context.Context, batch []*request) {
	client, p := s.client, s.patience
	renewals := batch[0].call.Op == driver.OpRenew
	if p != nil && (renewals || p.isSlow()) {
		var cancel context.CancelFunc
		ctx, cancel = withDeadline(ctx, s.client.(*redis.Client))
		defer cancel()
		if client = p.client(); renewals {
			client = p.unlimited()
		}
	}
	p.warm(s.sendSafely(ctx, client, new(sender), batch))
}
