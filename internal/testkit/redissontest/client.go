// Package redissontest is a peer for tests: towards Redis it behaves as the RLock and the
// RReadWriteLock of Java's Redisson 4.7 do. So a Go program that shares locks with one in Java can
// be tested without Java.
//
//	java := redissontest.New(server.Client(t))
//	_, held, err := java.Lock("report").TryLock(ctx, 1, 30*time.Second)
//
// Keys, fields, values, TTLs, channels, payloads, and the commands inside and around a script are
// Redisson's, as read at its commit 66863978b; its Lua is not. What is left out: the watchdog, of
// which [Lock.Renew] is one tick; WAIT, which Redisson adds if there are replicas, and its reads
// from them; that it sends a script again after a time-out unless Redis is standalone; and that it
// follows a sharded channel whose slot moves.
package redissontest

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Client is what one Redisson client is, in a process of its own: a random ID, and one
// subscription for all its waiters on a lock. It is safe for concurrent use. It has nothing to
// close once its waiters have returned.
type Client struct {
	rdb     redis.UniversalClient
	id      string
	mode    ShardedSubscription
	sharded bool

	mu            sync.Mutex
	subscriptions map[string]*subscription // by channel
	messages      []Message
}

// An Option is a setting of New.
type Option func(*Client)

// ShardedSubscription is Redisson's shardedSubscriptionMode.
type ShardedSubscription int

// The modes. They differ on a Cluster only: elsewhere Redisson has no such setting.
const (
	// Auto, Redisson's default, is SPUBLISH and SSUBSCRIBE if the Cluster has them (Redis 7).
	Auto ShardedSubscription = iota
	On                       // SPUBLISH and SSUBSCRIBE
	Off                      // PUBLISH and SUBSCRIBE, as before Redisson 3.22
)

// WithShardedSubscription sets the mode. Default: Auto.
func WithShardedSubscription(mode ShardedSubscription) Option {
	return func(c *Client) { c.mode = mode }
}

// New returns a Redisson client that speaks over rdb, which remains the caller's. On a
// *redis.ClusterClient and with Auto it asks for the subscribers of a sharded channel and, as
// Redisson does, takes any error for "no sharding": a test that counts on it should look at
// Sharded.
func New(rdb redis.UniversalClient, opts ...Option) *Client {
	c := &Client{rdb: rdb, id: newUUID(), subscriptions: map[string]*subscription{}}
	for _, opt := range opts {
		opt(c)
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		c.sharded = c.mode == On ||
			c.mode == Auto && cluster.PubSubShardNumSub(context.Background(), "0").Err() == nil
	}
	return c
}

// ID is the client's random UUID, with which the fields of its locks begin.
func (c *Client) ID() string { return c.id }

// Sharded reports whether the client uses SPUBLISH and SSUBSCRIBE.
func (c *Client) Sharded() bool { return c.sharded }

// Lock returns the lock of that name, which is its key. Two objects of one name are the same lock;
// each remembers the lease that was last taken through it, as an RLock does.
func (c *Client) Lock(name string) *Lock { return c.lock(name, "") }

func (c *Client) lock(name string, m mode) *Lock {
	l := &Lock{client: c, name: name, mode: m}
	l.lease.Store(watchdogTimeout)
	return l
}

func (c *Client) publishCommand() string {
	if c.sharded {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// newUUID returns a UUID of version 4.
func newUUID() string {
	b := random16()
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func random16() (b [16]byte) {
	_, _ = rand.Read(b[:]) // never fails
	return b
}
