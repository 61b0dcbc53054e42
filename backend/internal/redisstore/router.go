package redisstore

import (
	"context"
	"errors"
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
	cluster *redis.ClusterClient
	whole   *server     // by which go-redis finds the master
	loaded  atomic.Bool // go-redis knows the slots: it does not have to ask the Cluster

	mu      sync.RWMutex
	servers map[*redis.Client]*server
	setups  []func(*redis.Client) // of clients of our own
	mode    keyMode
}

func newRouter(cluster *redis.ClusterClient) *router {
	r := &router{cluster: cluster, whole: newServer(cluster), servers: map[*redis.Client]*server{}, mode: oneSlot}
	r.whole.mode.Store(int32(oneSlot))
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
		s.batcher(q).add(q)
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
	go r.whole.batcher(q).send([]*request{q})
}

// isElsewhere reports whether err says that a master has not run a command, and another one may.
func isElsewhere(err error) bool { return rediserr.IsMoved(err) || errors.Is(err, redis.ErrClosed) }

// heed has the masters of slots be looked up anew if err says that they may be others by now. The
// client of the Cluster does not see what its nodes' own clients do.
func (r *router) heed(err error) {
	if (rediserr.IsMoved(err) || spoilt(err)) && rediserr.KindOf(err) != driver.KindCanceled {
		r.cluster.ReloadState(context.Background())
	}
}
