package bench

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

// ttl is for how long leases last in all implementations: redsync's default. None is renewed in a
// benchmark of short pairs, so it changes nothing there, and all mean the same by it.
const ttl = 8 * time.Second

// A lease is what an implementation needs to give a key back.
type lease any

// A locker is what one process has: a client of its own, and on it what its authors put there. It
// is safe for concurrent use. Its methods hand a pointer through, and so cost no allocation beside
// those of the implementation.
type locker interface {
	// take waits until the key is the caller's, ctx has ended, or the implementation has had
	// enough of it.
	take(ctx context.Context, key string) (lease, error)
	give(ctx context.Context, key string, l lease) error
	// ping is a bare round trip by the same client.
	ping(ctx context.Context) error
	close()
}

// An extender is a locker that leaves it to its users to renew leases.
type extender interface {
	extend(ctx context.Context, l lease) error
}

// A setup is what a locker is opened with.
type setup struct {
	addr string
	ttl  time.Duration
	hook redis.Hook // of the go-redis client, or nil
}

// An impl is a way to lock keys on one Redis.
type impl struct {
	name string
	open func(setup) (locker, error)
	// sends are the commands on keys that it sends as they are; what else it does to keys it does
	// in scripts.
	sends []string
	// stalls says that an attempt can sleep until its context ends, see stalled.
	stalls bool
}

// impls are ours and the peers. onerun is backend/single, and reentrant backend/reentrant, both
// with fences, as all leases have one.
var impls = []impl{
	{name: "onerun", open: openSingle},
	{name: "reentrant", open: openReentrant},
	{name: "raw", open: openRaw, sends: []string{"set"}},
	{name: "redsync", open: openRedsync, sends: []string{"set"}},
	{name: "redislock", open: openRedislock},
	{name: "rueidislock", open: openRueidislock, stalls: true},
}

func (i impl) ours() bool { return i.name == "onerun" || i.name == "reentrant" }

// goRedis is a client with the defaults of go-redis, but for two that only add commands to each
// new connection.
func goRedis(s setup) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr:                     s.addr,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	s.addHook(rdb)
	return rdb
}

func (s setup) addHook(rdb *redis.Client) {
	if s.hook != nil {
		rdb.AddHook(s.hook)
	}
}

// onGoRedis is what is the same for all lockers on that client.
type onGoRedis struct{ rdb *redis.Client }

func (l onGoRedis) ping(ctx context.Context) error { return l.rdb.Ping(ctx).Err() }
func (l onGoRedis) close()                         { _ = l.rdb.Close() }

// guarded is a Guard, which waits for as long as its caller.
type guarded struct {
	onGoRedis
	g *guard.Guard
}

func openSingle(s setup) (locker, error) {
	rdb := goRedis(s)
	return newGuarded(rdb, single.New(rdb, single.WithClientSetup(s.addHook)), s.ttl)
}

func openReentrant(s setup) (locker, error) {
	rdb := goRedis(s)
	return newGuarded(rdb, reentrant.New(rdb, reentrant.WithClientSetup(s.addHook)), s.ttl)
}

func newGuarded(rdb *redis.Client, store guard.Locker, ttl time.Duration) (locker, error) {
	g, err := guard.New(store, guard.WithTTL(ttl), guard.WithWait(guard.Forever))
	return guarded{onGoRedis{rdb}, g}, err
}

func (l guarded) take(ctx context.Context, key string) (lease, error) { return l.g.Acquire(ctx, key) }

func (l guarded) give(ctx context.Context, _ string, held lease) error {
	return held.(*guard.Lease).Release(ctx)
}

func (l guarded) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = l.g.Close(ctx)
	if l.rdb != nil {
		l.onGoRedis.close()
	}
}

// rawLocks are what one writes by hand: SET NX PX, and a script that compares and deletes. They
// are the limit: they have no fence and no renewal, and their token is the same for a whole
// process. They have no way to wait, and ask again after a millisecond.
type rawLocks struct {
	onGoRedis
	token string
	ttl   time.Duration
}

func openRaw(s setup) (locker, error) {
	return rawLocks{onGoRedis{goRedis(s)}, rand.Text(), s.ttl}, nil
}

func (l rawLocks) take(ctx context.Context, key string) (lease, error) {
	for {
		ok, err := l.rdb.SetNX(ctx, key, l.token, l.ttl).Result()
		if ok || err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		time.Sleep(time.Millisecond) // the pause of a poll by hand
	}
}

func (l rawLocks) give(ctx context.Context, key string, _ lease) error {
	return deleteOwn.Run(ctx, l.rdb, []string{key}, l.token).Err()
}

// syncing is redsync as in its README: a Mutex for each use, with the default retries (32 tries,
// 50 to 250 ms apart).
type syncing struct {
	onGoRedis
	rs   *redsync.Redsync
	opts []redsync.Option
}

func openRedsync(s setup) (locker, error) {
	rdb := goRedis(s)
	return syncing{onGoRedis{rdb}, redsync.New(goredis.NewPool(rdb)), []redsync.Option{redsync.WithExpiry(s.ttl)}}, nil
}

func (l syncing) take(ctx context.Context, key string) (lease, error) {
	m := l.rs.NewMutex(key, l.opts...)
	return m, m.LockContext(ctx)
}

func (l syncing) give(ctx context.Context, _ string, held lease) error {
	_, err := held.(*redsync.Mutex).UnlockContext(ctx)
	return err
}

func (l syncing) extend(ctx context.Context, held lease) error {
	_, err := held.(*redsync.Mutex).ExtendContext(ctx)
	return err
}

func (l syncing) close() {
	if l.rdb != nil {
		l.onGoRedis.close()
	}
}

// polling is redislock as in its examples, LinearBackoff with a deadline, and with the shortest
// pause that its documentation recommends: "the recommended minimum value is not less than 16ms".
// Its examples have 100 and 500 ms, with which it hands keys on more slowly.
type polling struct {
	onGoRedis
	client *redislock.Client
	opts   *redislock.Options
	ttl    time.Duration
}

func openRedislock(s setup) (locker, error) {
	rdb := goRedis(s)
	opts := &redislock.Options{RetryStrategy: redislock.LinearBackoff(16 * time.Millisecond)}
	return polling{onGoRedis{rdb}, redislock.New(rdb), opts, s.ttl}, nil
}

func (l polling) take(ctx context.Context, key string) (lease, error) {
	return l.client.Obtain(ctx, key, l.ttl, l.opts)
}

func (l polling) give(ctx context.Context, _ string, held lease) error {
	return held.(*redislock.Lock).Release(ctx)
}

func (l polling) extend(ctx context.Context, held lease) error {
	return held.(*redislock.Lock).Refresh(ctx, l.ttl, nil)
}

// tracking is rueidislock as in its README for one Redis: KeyMajority 1, and NoLoopTracking, which
// it recommends from Redis 7.0.5 on.
type tracking struct{ rueidislock.Locker }

func openRueidislock(s setup) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{s.addr}},
		KeyValidity:    s.ttl,
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	return tracking{l}, err
}

func (l tracking) take(ctx context.Context, key string) (lease, error) {
	_, cancel, err := l.WithContext(ctx, key)
	return cancel, err
}

// give returns when the key is deleted: cancel waits for it.
func (l tracking) give(_ context.Context, _ string, held lease) error {
	held.(context.CancelFunc)()
	return nil
}

func (l tracking) ping(ctx context.Context) error {
	return l.Client().Do(ctx, l.Client().B().Ping().Build()).Error()
}

func (l tracking) close() { l.Close() }
