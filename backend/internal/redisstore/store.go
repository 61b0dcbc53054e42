// Package redisstore is what the backends on one Redis share: it runs their scripts, bounds every
// call, names the keys, and says what went wrong in a driver.StoreError.
package redisstore

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Store runs a backend's scripts on a client. It is safe for concurrent use.
type Store struct {
	backend string // the backend's name, for errors
	client  redis.UniversalClient
	addr    string
	lane    *lane     // to the one server
	nodes   *nodes    // of a Cluster, or nil
	unused  sync.Pool // of requests that are waited for
	setups  []func(*redis.Client)
	// minUptime is 0 unless MinUptime was called.
	minUptime time.Duration
	terms     atomic.Pointer[terms]
	err       error
}

// New returns a Store for the backend of that name. A client that cannot be used shows in Check.
func New(backend string, client redis.UniversalClient) *Store {
	s := &Store{
		backend: backend, client: client, lane: newLane(client),
		unused: sync.Pool{New: func() any { return &request{ready: make(chan struct{}, 1)} }},
	}
	if s.err = checkClient(client); s.err != nil {
		return s
	}
	s.addr = address(client)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		s.nodes = newNodes(cluster)
	}
	return s
}

// request returns a request that is to be waited for. free has to follow when it has been
// answered.
func (s *Store) request(ctx context.Context, c *Call) *request {
	r := s.unused.Get().(*request)
	r.set(ctx, c)
	return r
}

func (s *Store) free(r *request) {
	*r = request{ready: r.ready, soon: r.soon, name: longName{text: r.name.text}}
	s.unused.Put(r)
}

// Check returns a *guard.SettingError if the client or an option cannot be used. It does not ask
// the server.
func (s *Store) Check() error { return s.err }

// Refuse makes Check return that an option cannot be used, unless there is something else already.
func (s *Store) Refuse(option, value, reason string) {
	if s.err == nil {
		s.err = &driver.SettingError{Setting: option, Value: value, Reason: reason}
	}
}

// ClientSetup has f called with each client of our own before it is used. It is option
// WithClientSetup of the backends.
func (s *Store) ClientSetup(f func(*redis.Client)) {
	if f == nil {
		s.Refuse("WithClientSetup", "nil", "must not be nil")
	}
	if s.err != nil {
		return
	}
	s.setups = append(s.setups, f)
	if s.nodes != nil {
		s.nodes.setups = s.setups
		return
	}
	s.lane.setUp(s.setups)
	for _, seat := range s.lane.all() { // now, for a panic to be seen
		seat.client = nil
		if _, err := seat.own(); err != nil {
			s.Refuse("WithClientSetup", "", err.Error())
		}
	}
}

// WithoutBatching keeps the keys of different claims out of one script. It is option
// WithoutBatching of the backends.
func (s *Store) WithoutBatching() {
	s.lane.apart.Store(noneElse)
	if s.nodes != nil {
		s.nodes.apart = noneElse
	}
}

func checkClient(client redis.UniversalClient) error {
	refused := &driver.SettingError{Setting: "client", Reason: "must not be nil"}
	if client == nil {
		return refused
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return refused
	}
	if _, ok := client.(*redis.Ring); ok {
		refused.Value = "*redis.Ring"
		refused.Reason = "a Ring moves the keys of a shard to another one when it misses some heartbeats, " +
			"while the holder still holds: two would hold one key. Use its nodes with backend/redlock"
		return refused
	}
	return nil
}

// behindSentinel stands for the address of a server that Sentinel knows.
const behindSentinel = "sentinel"

// address names the server, or the servers, for errors.
func address(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		if addr := c.Options().Addr; addr != "FailoverClient" { // go-redis' stand-in for Sentinel
			return addr
		}
		return behindSentinel
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	}
	return ""
}
