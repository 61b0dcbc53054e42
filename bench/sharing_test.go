package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// sharers are how many callers share a key, and limit is how many may hold it at a time.
const (
	sharers = 64
	limit   = 8
)

// oneKey is a locker whose callers all want the same key. It counts those that have it.
type oneKey struct {
	locker
	inside, most *atomic.Int64
}

func newOneKey(l locker) oneKey { return oneKey{l, new(atomic.Int64), new(atomic.Int64)} }

func (l oneKey) take(ctx context.Context, key string) (lease, error) {
	got, err := l.locker.take(ctx, key[:strings.LastIndexByte(key, ':')])
	if err == nil {
		raise(l.most, l.inside.Add(1))
	}
	return got, err
}

func (l oneKey) give(ctx context.Context, key string, held lease) error {
	l.inside.Add(-1)
	return l.locker.give(ctx, key[:strings.LastIndexByte(key, ':')], held)
}

// BenchmarkReaders has 64 readers of one key, beside 64 callers with a key of their own each.
func BenchmarkReaders(b *testing.B) {
	server := redistest.Start(b)
	open := func(b *testing.B, opts ...guard.Option) locker {
		rdb := goRedis(setup{addr: server.Addr()})
		g, err := guard.New(single.New(rdb), append(opts, guard.WithTTL(ttl), guard.WithWait(guard.Forever))...)
		require.NoError(b, err)
		l := guarded{onGoRedis{rdb}, g}
		b.Cleanup(l.close)
		return l
	}
	b.Run("impl=onerun/keys=own", func(b *testing.B) { run(b, sharers, open(b), nil, server) })
	b.Run("impl=onerun/keys=one", func(b *testing.B) {
		run(b, sharers, newOneKey(open(b, guard.WithShared())), nil, server)
	})
}

// BenchmarkLimits has 64 callers that want one key, which eight may hold at a time: with a counter
// in Redis, as Redisson has it, and with a sorted set that is asked again after a millisecond, as
// asynq's x/rate does. Their commands are written here: x/rate does not build with asynq 0.26.
func BenchmarkLimits(b *testing.B) {
	server := redistest.Start(b)
	for name, open := range map[string]func(rdb *redis.Client) (locker, error){
		"onerun": func(rdb *redis.Client) (locker, error) {
			g, err := guard.New(single.New(rdb), guard.WithLimit(limit), guard.WithTTL(ttl), guard.WithWait(guard.Forever))
			return guarded{onGoRedis{rdb}, g}, err
		},
		"counter": openCounter,
		"x-rate":  func(rdb *redis.Client) (locker, error) { return rated{onGoRedis{rdb}}, nil },
	} {
		b.Run("impl="+name, func(b *testing.B) {
			l, err := open(goRedis(setup{addr: server.Addr()}))
			require.NoError(b, err)
			b.Cleanup(l.close)
			one := newOneKey(l)
			run(b, sharers, one, []string{"zrem"}, server)
			require.LessOrEqual(b, one.most.Load(), int64(limit))
			b.ReportMetric(float64(one.most.Load()), "most-at-a-time")
		})
	}
}

// permits are a number in Redis. A release adds one and publishes it, and each message
// wakes a waiter of the process. There are no leases: a crash loses a permit.
type permits struct {
	onGoRedis
	sub  *redis.PubSub
	wake chan struct{}
	made sync.Map // keys that have their permits
}

var (
	takePermit = redis.NewScript(`
local free = tonumber(redis.call('GET', KEYS[1]))
if free and free > 0 then
  redis.call('DECR', KEYS[1])
  return 1
end
return 0`)
	givePermit = redis.NewScript(`
local free = redis.call('INCR', KEYS[1])
redis.call('PUBLISH', 'permits', free)
return free`)
)

func openCounter(rdb *redis.Client) (locker, error) {
	l := &permits{onGoRedis: onGoRedis{rdb}, sub: rdb.Subscribe(context.Background(), "permits"), wake: make(chan struct{}, sharers)}
	if _, err := l.sub.Receive(context.Background()); err != nil {
		return nil, err
	}
	go func() {
		for range l.sub.Channel() {
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
	}()
	return l, nil
}

func (l *permits) take(ctx context.Context, key string) (lease, error) {
	if _, made := l.made.LoadOrStore(key, true); !made {
		if err := l.rdb.SetNX(ctx, key, limit, 0).Err(); err != nil {
			return nil, err
		}
	}
	for {
		got, err := takePermit.Run(ctx, l.rdb, []string{key}).Int()
		if err != nil || got == 1 {
			return nil, err
		}
		select {
		case <-l.wake:
		case <-time.After(100 * time.Millisecond): // a message may have come between
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *permits) give(ctx context.Context, key string, _ lease) error {
	return givePermit.Run(ctx, l.rdb, []string{key}).Err()
}

func (l *permits) close() {
	_ = l.sub.Close()
	l.onGoRedis.close()
}

// rated has a sorted set of holders, by the client's clock in seconds.
type rated struct{ onGoRedis }

var takeToken = redis.NewScript(`
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', tonumber(ARGV[2]) - 1)
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
  return 1
end
return 0`)

func (l rated) take(ctx context.Context, key string) (lease, error) {
	token := rand.Text()
	for {
		now := time.Now()
		got, err := takeToken.Run(ctx, l.rdb, []string{key}, limit, now.Unix(), now.Add(ttl).Unix(), token).Int()
		if err != nil || got == 1 {
			return token, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		time.Sleep(time.Millisecond) // the pause of a poll by hand
	}
}

func (l rated) give(ctx context.Context, key string, token lease) error {
	n, err := l.rdb.ZRem(ctx, key, token).Result()
	if err == nil && n == 0 {
		return errors.New("no token")
	}
	return err
}
