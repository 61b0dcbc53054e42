// Package single is a driver.Locker on one Redis: standalone, behind Sentinel, or a Cluster.
//
//	g, err := guard.New(single.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})))
//
// A lease is one string key with a TTL. One script each acquires, renews and releases it. It needs
// Redis 6.2, or a compatible server with scripts.
//
// A Redis that fails over can forget its newest writes, and with them a lease. The holder learns
// it at its next renewal. Until then, another process can hold the key as well, under a higher
// fence.
package single

import (
	_ "embed"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/pubsub"
	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker keeps leases in one Redis. It is safe for concurrent use.
type Locker struct {
	*locker
	store *redisstore.Store
	*scripts
	name func(key string) string // WithPlainKeys, or nil
	acks redisstore.Acks
}

// locker has what the Locker shares with that of package reentrant.
type locker = redisstore.Locker

var (
	_ driver.Locker     = (*Locker)(nil)
	_ driver.Describer  = (*Locker)(nil)
	_ driver.Ledger     = (*Locker)(nil)
	_ driver.Warner     = (*Locker)(nil)
	_ driver.Async      = (*Locker)(nil)
	_ driver.Subscriber = (*Locker)(nil)
)

// New returns a Locker on the client, which may be any but a *redis.Ring. guard.New refuses a Ring
// and nil. It cannot recognise a Ring inside of a wrapper of your own: do not give it one.
//
// The client remains the caller's, to be closed after the Guard. Its own retries do not apply to
// leases, and each call ends with its context and not with the client's ReadTimeout.
//
// Claims and releases that meet on their way to a server go out as one script, and on a Cluster as
// one pipeline to each node. Renewals and frequent claims use up to three connections of the
// Locker's own to the server, or to each master of a Cluster. So they do not wait for an
// application that uses up the client's pool. These connections have the client's options, except
// for its Limiter, which no renewal asks. They do not run its hooks, see WithClientSetup. The
// Locker closes them if they were not used for half a second (15 seconds for renewals), or by
// Close. If the server accepts no more connections, everything uses the client.
//
// Everything uses the connections of the client if it finds its server through Sentinel, has a
// StreamingCredentialsProvider or no read deadlines (a ReadTimeout of -2), or is of another type.
// Renewals then keep one connection of its pool for up to 15 seconds, so give it a PoolSize of at
// least 2: in a pool of one, a command that blocks (BLPOP) delays renewals until leases are lost.
// guard.Hook.Warn reports such a pool. WithReplicas always uses the client.
//
// If an answer takes longer than half of the client's ReadTimeout, the server counts as slow for a
// minute. Calls then wait for as long as the lease allows, and do not run the client's hooks.
func New(client redis.UniversalClient, opts ...Option) *Locker {
	l := &Locker{store: redisstore.New("single", client)}
	for _, opt := range opts {
		if opt == nil {
			l.store.Refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(l)
	}
	via := pubsub.ViaPlain
	if _, ok := client.(*redis.ClusterClient); ok {
		via = pubsub.ViaSharded
	}
	l.scripts = dialect{sharded: via != pubsub.ViaPlain, plain: l.name != nil}.scripts()
	l.locker = redisstore.NewLocker(l.store, redisstore.Layout{
		Program: l.program, Names: l.names, Further: further, Inspection: l.inspection, Acks: l.acks,
		Channel: l.channel, Via: via,
	})
	return l
}

// An Option is a setting of New. guard.New refuses one that cannot work.
type Option func(*Locker)

// WithReplicas requires that n replicas acknowledge a lease that is granted, and a done marker
// that is left, within a time, by WAIT on the same connection. If too few do, the claim is
// released and the call ends with driver.KindNoReplicas. The time must be shorter than the
// client's ReadTimeout, and than the TTL of the leases.
//
// It makes it unlikely that a failover forgets a lease. It does not make it impossible, because a
// replica that has not acknowledged can be promoted. Defaults to none: no replica is asked.
func WithReplicas(n int, within time.Duration) Option {
	return func(l *Locker) {
		switch {
		case n < 1:
			l.store.Refuse("WithReplicas", strconv.Itoa(n), "must ask for at least one replica")
		case within < time.Millisecond:
			l.store.Refuse("WithReplicas", within.String(), "must give them at least 1ms")
		default:
			l.acks = redisstore.Acks{Replicas: n, Within: within}
		}
	}
}

// WithClientSetup calls f with each client that the Locker creates for its own connections (see
// New). f can add hooks, such as those of redisotel.InstrumentTracing. The Locker cannot read the
// hooks of the user's client. There are three clients for a server, with one connection at a time
// each. They are kept for as long as the Locker is. f must not close them, nor send anything.
//
// f is called while New runs. For a Cluster, it is called when a node is first needed, by any
// goroutine, and perhaps by several at a time. guard.New refuses nil, and an f that panics. If f
// panics for a node of a Cluster, everything for that node uses the user's client. Defaults to
// none: the clients have no hooks.
func WithClientSetup(f func(own *redis.Client)) Option {
	return func(l *Locker) { l.store.ClientSetup(f) }
}

// WithoutBatching makes each claim, renewal and release a script of its own, with the keys of one
// lease. The Locker does so by itself if it finds a proxy that routes a script by its first key, as
// Envoy does: a script for several leases would put their keys on one server, and two processes
// could then hold one of them. It also does so for a service that parses scripts, and until it
// knows. guard.Hook.Warn reports both. Use the option to spare it the scripts that find it out: it
// sets 32 keys with a TTL by one, and deletes each by another. Scripts still share pipelines.
// Defaults to batching: up to 128 claims and releases that meet share a script, if the server takes
// their keys together.
func WithoutBatching() Option {
	return func(l *Locker) { l.store.WithoutBatching() }
}

// WithMinUptime refuses to grant leases on a server that restarted, until it has been up for
// longer than the longest TTL that is used. The server may have forgotten leases, and by then they
// have ended. Claims fail with driver.KindRestarted until then, and a lease with a longer TTL is
// refused. It is the "delayed restart" that the Redis documentation asks for with Redlock, and
// costs one INFO inside of the script. Done markers and minimum holds that were forgotten remain
// forgotten. The Locker does not notice FLUSHALL, or a failover to a replica that was up all the
// time.
//
// Redis counts the seconds since its start by the wall clock. If that clock is set ahead after the
// start, the server grants too early, by as much. If it is set back, the server grants later.
// Defaults to off: no server is refused.
func WithMinUptime(longest time.Duration) Option {
	return func(l *Locker) { l.store.MinUptime(longest) }
}

var (
	//go:embed acquire_quick.lua
	acquireQuickSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew_quick.lua
	renewQuickSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release_quick.lua
	releaseQuickSource string
	//go:embed release.lua
	releaseSource string
)

// alone returns the scripts of claims that hold a key alone.
func (d dialect) alone() redisstore.Scripts {
	return redisstore.NewScripts(redisstore.Sources{
		Common: d.common(),
		Acquire: redisstore.Operation{
			Quick: acquireQuickSource, Source: acquireSource, Keys: 2, Args: 2, Shared: 2, Fences: true,
		},
		Renew: redisstore.Operation{
			Quick: renewQuickSource, Source: renewSource, Keys: 2, Args: 2, Shared: 2, Fences: true,
		},
		Release: redisstore.Operation{
			Common: d.publishing(), Quick: releaseQuickSource, Source: releaseSource, Keys: 1, Args: 1, Shared: 2, Record: true, Publishes: true,
		},
		Free: "local function is_free() return redis.call('EXISTS', KEYS[1]) == 0 end\n",
	})
}

// Describe implements driver.Describer. The ID alone distinguishes a claim from others, so the
// Locker keeps no owners. Any number of claims can share a key, unless WithPlainKeys is set.
func (l *Locker) Describe() driver.Description {
	d := l.locker.Describe()
	d.CheckKey, d.Shares = l.checkKey, func(int) error { return l.checkSharing() }
	return d
}

// names returns the Redis keys of the key's lease and its fence counter.
func (l *Locker) names(_ driver.Op, key string) redisstore.Names {
	if l.name != nil {
		name := l.name(key)
		fence := redisstore.FenceKeyBeside(name)
		return redisstore.Names{Keys: [...]string{name, fence}, Slot: fence}
	}
	prefix, fence := redisstore.LeasePrefix(key)
	return redisstore.Names{Prefix: prefix, Keys: [...]string{key, fence}, Slot: fence}
}
