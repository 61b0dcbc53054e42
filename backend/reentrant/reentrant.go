// Package reentrant is a driver.Locker on one Redis that keeps owners: an owner that holds a key
// can acquire it again, even in another process that names the same owner. The Redis is
// standalone, behind Sentinel, or a Cluster. A Java service that locks the same name with
// Redisson's RLock excludes this one, and is excluded by it.
//
//	g, err := guard.New(reentrant.New(rdb), guard.WithOwner("import of " + tenant))
//
// A key is a hash under its own name, with a field for each hold, and is free when the last hold
// has gone. It needs Redis 6.2, or a compatible server with scripts.
//
// Claims can share a key (guard.WithShared, guard.WithLimit). Those of one owner count as one
// holder. To Redisson they hold an RLock, which is free when the last of them has ended. With
// WithReadWrite, a key is an RReadWriteLock of Redisson's instead, which readers in Java share.
//
// To Redisson, a minimum hold and a done marker look like a hold, so Java waits until they end. A
// Java thread and a holder in Go never share a hold, whatever the owner's name. A Redis that fails
// over can forget its newest writes, and Java's forceUnlock removes any hold. The holder learns it
// at its next renewal.
package reentrant

import (
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/pubsub"
	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker keeps leases in one Redis. It is safe for concurrent use.
type Locker struct {
	*locker
	store     *redisstore.Store
	publish   Publish
	readWrite bool
}

// locker has what the Locker shares with that of package single.
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
// The client remains the caller's, to be closed after the Guard. What single.New says of its
// retries, time-outs and connections is true here, too.
func New(client redis.UniversalClient, opts ...Option) *Locker {
	l := &Locker{store: redisstore.New("reentrant", client), publish: PublishPlain}
	if _, ok := client.(*redis.ClusterClient); ok {
		l.publish = PublishSharded
	}
	for _, opt := range opts {
		if opt == nil {
			l.store.Refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(l)
	}
	l.locker = redisstore.NewLocker(l.store, redisstore.Layout{
		Program: l.program(), Names: l.names, Further: l.further, Inspection: l.inspection(), Check: l.checkTTL,
		Publish: l.howToPublish(), Channel: l.channel, Via: vias[l.publish],
	})
	return l
}

// An Option is a setting of New. guard.New refuses one that cannot work.
type Option func(*Locker)

// Publish is the command by which releases are published.
type Publish string

// How to publish.
const (
	// PublishPlain is PUBLISH. Redisson subscribes to it, except on a Cluster of Redis 7.
	PublishPlain Publish = "plain"
	// PublishSharded is SPUBLISH if the server has it (Redis 7), and PUBLISH otherwise. Redisson
	// subscribes to it on a Cluster.
	PublishSharded Publish = "sharded"
	// PublishBoth sends both. It is for services that subscribe differently, for example because
	// of Redisson's shardedSubscriptionMode, or with Redisson before 3.22.
	PublishBoth Publish = "both"
)

var vias = map[Publish]pubsub.Via{
	PublishPlain: pubsub.ViaPlain, PublishSharded: pubsub.ViaSharded, PublishBoth: pubsub.ViaBoth,
}

// WithPublish sets how a release is published. Set it if a Cluster is behind a proxy that looks
// like one server. Defaults to PublishSharded on a *redis.ClusterClient, and to PublishPlain on
// any other client, as Redisson does.
func WithPublish(p Publish) Option {
	return func(l *Locker) {
		switch p {
		case PublishPlain, PublishSharded, PublishBoth:
			l.publish = p
		default:
			l.store.Refuse("WithPublish", string(p), "must be PublishPlain, PublishSharded or PublishBoth")
		}
	}
}

// WithClientSetup is single.WithClientSetup for this package. Defaults to none.
func WithClientSetup(f func(own *redis.Client)) Option {
	return func(l *Locker) { l.store.ClientSetup(f) }
}

// WithoutBatching is single.WithoutBatching for this package. Defaults to batching.
func WithoutBatching() Option {
	return func(l *Locker) { l.store.WithoutBatching() }
}

// WithMinUptime is single.WithMinUptime for this package. Defaults to off: no server is refused.
func WithMinUptime(longest time.Duration) Option {
	return func(l *Locker) { l.store.MinUptime(longest) }
}

var (
	//go:embed holds.lua
	holdsSource string
	//go:embed survey.lua
	surveySource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release.lua
	releaseSource string
	//go:embed free.lua
	freeSource string

	aloneScripts = redisstore.NewScripts(redisstore.Sources{
		Common:  redisstore.TimesSource + holdsSource + surveySource,
		Acquire: redisstore.Operation{Source: claimSource + acquireSource, Keys: 2, Args: 3, Shared: 2, Fences: true},
		Renew: redisstore.Operation{
			Source: rlockSource + constants + sharedSource + renewSource, Keys: 2, Args: 2, Shared: 2, Fences: true,
		},
		Release: redisstore.Operation{
			Source: "local FREE = '0'\n" + releaseSource,
			Keys:   2, Args: 1, Shared: 3, Record: true, Publishes: true, Free: nextSource,
		},
		Free: freeSource,
	})

	ofRLock = &redisstore.Program{Alone: aloneScripts, Shared: sharedScripts}
	// A hold alone of a read-write lock is renewed as that of an RLock.
	ofReadWriteLock = &redisstore.Program{
		Alone:  redisstore.Scripts{Acquire: readWriteScripts.Acquire, Renew: aloneScripts.Renew, Release: readWriteScripts.Release},
		Shared: readWriteScripts,
	}
)

func (l *Locker) program() *redisstore.Program {
	if l.readWrite {
		return ofReadWriteLock
	}
	return ofRLock
}

// Describe implements driver.Describer. Any number of claims can share a key. With WithReadWrite,
// their number cannot be limited.
func (l *Locker) Describe() driver.Description {
	d := l.locker.Describe()
	d.Owners, d.CheckKey, d.Shares = true, l.checkKey, l.checkSharing
	return d
}

// checkKey is the rule for keys. Keys may have braces, which choose the slot in a Cluster,
// as long as the key's channel is then in the same slot: "{tenant}:report" is a key, "a{b", "a{}b"
// and "a}b" are not.
func (l *Locker) checkKey(key string) error {
	if err := driver.CheckKeyBytes(key); err != nil {
		return err
	}
	switch {
	case redisstore.Own(key):
		return &driver.KeyError{Key: key, Reason: `begins with "onerun:{", as the names of Onerun's own keys do`}
	case redisstore.HashTag(l.channel(key)) != redisstore.HashTag(key):
		return &driver.KeyError{Key: key, Reason: "has a brace that does not enclose a hash tag: the lock and the channel of its release would be in two slots of a Redis Cluster"}
	}
	return nil
}

// channel returns the name of the channel on which this package and Redisson publish that a lock is
// free.
func (l *Locker) channel(key string) string {
	if l.readWrite {
		return "redisson_rwlock:" + inBraces(key)
	}
	return "redisson_lock__channel:" + inBraces(key)
}

// names returns the Redis keys of the key: its own, and the fence counter or, for releases
// and inspections, the channel.
func (l *Locker) names(op driver.Op, key string) redisstore.Names {
	fence := redisstore.FenceKeyBeside(key)
	names := redisstore.Names{Keys: [...]string{key, fence}, Slot: fence}
	if op == driver.OpRelease || op == driver.OpInspect {
		names.Keys[1] = l.channel(key)
	}
	return names
}

// further returns the Redis keys that follow these in the scripts of shared claims.
func (l *Locker) further(op driver.Op, c driver.Claim, fence string) (keys []string) {
	if op != driver.OpRenew {
		keys = append(keys, redisstore.WantedKey(fence, c.Key))
	}
	if op == driver.OpAcquire {
		keys = append(keys, l.channel(c.Key))
	}
	if l.readWrite {
		keys = append(keys, timeoutKey(c))
	}
	return keys
}

// howToPublish returns the argument that says how to publish, see publish.lua.
func (l *Locker) howToPublish() string {
	if l.publish == PublishPlain {
		return "" // it is not sent
	}
	return string(l.publish)
}
