package redisstore

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A router finds the master of a Cluster that has a key. Requests to one master share batches.
type router struct {
	cluster     *redis.ClusterClient
	clusterWide *endpoint   // go-redis finds the master of each key
	loaded      atomic.Bool // go-redis knows the slots, and does not have to ask the Cluster

	mu      sync.RWMutex
	servers map[*redis.Client]*server
	setups  []func(*redis.Client) // for own clients
	mode    keyMode
}

func newRouter(cluster *redis.ClusterClient) *router {
	r := &router{cluster: cluster, clusterWide: newEndpoint(cluster), servers: map[*redis.Client]*server{}, mode: oneSlot}
	r.clusterWide.mode.Store(int32(oneSlot))
	return r
}

// find asks go-redis for the master that has the key. If the slots are not loaded, it has to ask
// the Cluster.
func (r *router) find(ctx context.Context, key string) (*server, error) {
	node, err := r.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	r.loaded.Store(true)
	r.mu.RLock()
	s := r.servers[node]
	r.mu.RUnlock()
	if s == nil {
		s = r.add(node)
	}
	return s, nil
}

// add returns the way to a master, and drops those that nothing has used for some time: their
// nodes may have left.
func (r *router) add(node *redis.Client) *server {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.servers[node]; s != nil {
		return s
	}
	r.drop(time.Minute)
	s := newServer(node)
	s.mode.Store(int32(r.mode))
	s.moved = r.resend
	s.setUp(r.setups)
	r.servers[node] = s
	return s
}

// drop drops the ways to masters that nothing has used for that time, and closes their clients.
// r.mu must be held.
func (r *router) drop(unusedFor time.Duration) {
	maps.DeleteFunc(r.servers, func(_ *redis.Client, s *server) bool {
		if !s.unused(unusedFor) {
			return false
		}
		s.close()
		return true
	})
}

func (r *router) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.servers {
		s.close()
	}
}

// send sends a request to its master, when that is found.
func (r *router) send(q *request) {
	find := func() (s *server, err error) {
		err = rediserr.Recovered(func() error {
			s, err = r.find(q.ctx, q.call.routeKey())
			return err
		})
		return s, err
	}
	contain.Call(find, func(s *server, err error) {
		if err != nil {
			q.finish(nil, err)
			return
		}
		s.add(q)
	})
}

// resend sends a request that a master has refused, or whose master has left, by the Cluster's
// client, which follows where its key has gone. That client would send WAIT to another master, so
// a request that replicas have to acknowledge ends with an error instead, after which the engine
// asks again.
func (r *router) resend(q *request, err error) {
	r.cluster.ReloadState(context.Background())
	if q.call.Acks.Replicas > 0 {
		if !rediserr.IsMoved(err) {
			err = refusal("TRYAGAIN the node has left the Cluster")
		}
		q.finish(nil, err)
		return
	}
	go r.clusterWide.sendByApp(q.ctx, []*request{q})
}

// reloadSlotsOn looks up the masters of slots anew if err says that they may have changed. The
// client of the Cluster does not see what the lanes to its nodes do.
func (r *router) reloadSlotsOn(err error) {
	if (rediserr.IsMoved(err) || connError(err)) && rediserr.KindOf(err) != driver.KindCanceled {
		r.cluster.ReloadState(context.Background())
	}
}
