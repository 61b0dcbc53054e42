// Package redisstore is the common part of the backends on one Redis. It runs their scripts,
// bounds every call, names the keys, and returns errors as a *driver.StoreError.
//
// A backend gives a Locker a Program, which has its Lua, and the Calls that it makes for a claim.
// The Store sends each Call as a request. A request passes these parts:
//
//   - A router finds the server of the key, if the client is one of a Cluster.
//   - A server has a batcher, which collects the claims and releases that come while others are
//     out. It has another one for renewals, so that these wait for nothing else.
//   - A lane is one connection of the Locker's own, or one that it keeps of the application's pool.
//   - A sender joins the requests of a batch in few scripts, sends them to the server's endpoint,
//     and gives each request its answer. It repeats what a server must have in another form:
//     NOSCRIPT, MOVED, CROSSSLOT.
//
// There are two ways from a request to a server. A caller that finds nothing under way sends its
// request itself, on a lane: handing it to another goroutine would add a fifth to its time. All
// other requests go in batches, on a lane or by the application's client.
//
// The files are read in this order: inspect, ledger, bulk, locker, layout, info, store,
// queue, recent, router, server, batcher, lane, own, sender, endpoint, probe, slow, command,
// request, call, program; and those that use no other: answer, keys, slot, errors, literal, client,
// keymode, arguments. A file uses names of those after it. In 6 of 116 pairs of files that use
// names of each other, the later file uses one of the earlier file.
//
// The pipelines of go-redis, and its AutoPipeline, do not serve. They send many scripts in one
// round trip, but they cannot make one script of 128 claims, which is most of what a batch gains.
// They use connections of the application's pool, so that renewals would wait for its commands.
// And their reads do not end with the context of a call.
package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Store runs a backend's scripts on a client. It is safe for concurrent use.
type Store struct {
	backend string // the backend's name, for errors
	client  redis.UniversalClient
	addr    string
	server  *server   // used if router is nil
	router  *router   // of a Cluster, or nil
	unused  sync.Pool // requests
	setups  []func(*redis.Client)
	// minUptime is 0 unless MinUptime was called.
	minUptime time.Duration
	lastTTL   atomic.Pointer[ttlText]
	closed    atomic.Bool
	err       error // a *driver.SettingError if the client or an option cannot be used
}

// New returns a Store for the backend of that name.
func New(backend string, client redis.UniversalClient) *Store {
	s := &Store{
		backend: backend, client: client, server: newServer(client),
		unused: sync.Pool{New: func() any { return &request{ready: make(chan signal, 2)} }},
	}
	if s.err = checkClient(client); s.err != nil {
		return s
	}
	s.addr = address(client)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		s.router = newRouter(cluster)
	}
	return s
}

// run sends a call and returns its answer, or the error of ctx if that ends first. By default,
// go-redis would continue to read until the client's own time-outs, although ctx has ended.
func (s *Store) run(ctx context.Context, c *Call) (any, error) {
	r := s.newRequest(ctx, c, 0, nil)
	if err := s.refused(r); err != nil {
		s.free(r)
		return nil, err
	}
	server := s.serverNow(r)
	if server == nil || !server.addDirect(r) {
		s.startBy(r, server)
	}
	if err := r.wait(ctx); err != nil {
		return nil, err // r may still be in use
	}
	answer, err := r.answer, r.err
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	s.free(r)
	if p, ok := err.(*rediserr.HookPanic); ok { //nolint:errorlint // it is never wrapped
		panic(p.Value)
	}
	return answer, err
}

var errClosed = fmt.Errorf("the Locker was closed: %w", redis.ErrClosed)

// refused returns why the request cannot be sent, or nil.
func (s *Store) refused(r *request) error {
	if s.closed.Load() {
		return errClosed
	}
	return cmp.Or(r.ctx.Err(), s.checkTTL(r.call.acquires.TTL))
}

// close closes the lanes, each when the call that uses it has ended.
func (s *Store) close() {
	s.closed.Store(true)
	s.server.close()
	if s.router != nil {
		s.router.close()
	}
}

// newRequest returns a request. When it has its answer, done is called with i, or a caller that
// waits is woken if done is nil.
func (s *Store) newRequest(ctx context.Context, c *Call, i int, done func(int, driver.Answer, error)) *request {
	r := s.unused.Get().(*request)
	r.store, r.ctx, r.call, r.index, r.done = s, ctx, *c, i, done
	return r
}

// free makes a request available to another call, unless its alarm may still send a signal.
func (s *Store) free(r *request) {
	if !r.late {
		*r = request{ready: r.ready, alarm: r.alarm, key: prefixed{text: r.key.text}}
		s.unused.Put(r)
	}
}

// start sends the requests, possibly in a batch with others. Those to one server are added to its
// queue at once, so that they go out together.
func (s *Store) start(requests ...*request) {
	together := requests[:0]
	for _, r := range requests {
		switch err := s.refused(r); {
		case err != nil:
			r.finish(nil, err)
		case s.router != nil:
			s.startBy(r, s.serverNow(r))
		default:
			together = append(together, r)
		}
	}
	if len(together) > 0 {
		s.server.add(together...)
	}
}

// startBy sends a request to a server, or to that of its key if the Cluster must be asked for it.
func (s *Store) startBy(r *request, server *server) {
	if server != nil {
		server.add(r)
	} else {
		go s.router.send(r)
	}
}

// serverNow returns the server for the request, or nil if the Cluster must be asked for it first.
func (s *Store) serverNow(r *request) *server {
	if s.router == nil {
		return s.server
	}
	if !s.router.loaded.Load() {
		return nil
	}
	server, _ := s.router.find(r.ctx, r.call.routeKey())
	return server
}

// Refuse has driver.Description.Err say why an option cannot be used, unless it says something else
// already.
func (s *Store) Refuse(option, value, reason string) {
	if s.err == nil {
		s.err = &driver.SettingError{Setting: option, Value: value, Reason: reason}
	}
}

// ClientSetup calls f with each of the Store's own clients before its first use. It is option
// WithClientSetup of the backends.
func (s *Store) ClientSetup(f func(*redis.Client)) {
	if f == nil {
		s.Refuse("WithClientSetup", "nil", "must not be nil")
	}
	if s.err != nil {
		return
	}
	s.setups = append(s.setups, f)
	if s.router != nil {
		s.router.setups = s.setups
		return
	}
	s.server.setUp(s.setups)
	for _, l := range s.server.lanes() { // now, so that guard.New reports a panic
		if l.own == nil {
			continue
		}
		l.own.client = nil
		if err := l.own.setUp(); err != nil {
			s.Refuse("WithClientSetup", "", err.Error())
		}
	}
}

// WithoutBatching sends each claim in a script of its own. It is option
// WithoutBatching of the backends.
func (s *Store) WithoutBatching() {
	s.server.mode.Store(int32(oneCall))
	if s.router != nil {
		s.router.mode |= oneCall
	}
}

func (s *Store) error(c *Call, err error) error {
	if s.router != nil {
		s.router.reloadSlotsOn(err)
	}
	kind := rediserr.KindOf(err)
	switch {
	case isShortOfAcks(err):
		kind = driver.KindNoReplicas
	case errors.Is(err, ErrAnswer):
		kind = driver.KindProtocol
	case errors.Is(err, errLongTTL):
		kind = driver.KindSettings
	}
	if refusesLua(err) {
		kind, err = driver.KindUnsupported, luaRefused{err}
	}
	return &driver.StoreError{Backend: s.backend, Op: c.Op, Key: c.Key, Addr: s.addr, Kind: kind, Err: err}
}

// Addr returns the server's address, or "" if the client finds its server through Sentinel. A
// Cluster has the addresses that its client was given.
func (s *Store) Addr() string {
	if s.addr == behindSentinel {
		return ""
	}
	return s.addr
}
