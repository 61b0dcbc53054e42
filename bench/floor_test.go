package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A floor is the least that a library can do whose calls block their callers: it collects what
// comes while a script is under way, and one script serves all of that. It ends no call with its
// context, and renews nothing. What it takes is a script for many keys by go-redis, and a wake-up
// for each call.
type floor struct {
	onGoRedis
	scripts floorScripts
	token   string
	calls   chan floorCall
	done    chan struct{}
}

// floorScripts take and give many keys. If they are fenced, a key's fence counter follows it.
type floorScripts struct {
	take, give *redis.Script
	fenced     bool
}

type floorCall struct {
	key    string
	script *redis.Script
	answer chan error
}

// bareScripts keep no fences and wake no waiters.
var bareScripts = floorScripts{
	take: redis.NewScript(`
local answers = {}
for i = 1, #KEYS do
  answers[i] = redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2], 'NX') and 1 or 0
end
return answers`),
	give: redis.NewScript(`
local answers = {}
for i = 1, #KEYS do
  answers[i] = redis.call('GET', KEYS[i]) == ARGV[1] and redis.call('DEL', KEYS[i]) or 0
end
return answers`),
}

// fencedScripts do the least that backend/single does: they raise a counter to the clock, and tell
// waiters of a release.
var fencedScripts = floorScripts{
	fenced: true,
	take: redis.NewScript(`
local time = redis.call('TIME')
local fence = string.format('%.0f', time[1] * 1048576 + time[2])
local answers = {}
for i = 1, #KEYS / 2 do
  local counter = KEYS[2 * i]
  if (redis.call('GET', counter) or '') <= fence then
    answers[i] = redis.call('SET', KEYS[2 * i - 1], ARGV[1], 'PX', ARGV[2], 'NX') and 1 or 0
    redis.call('SET', counter, fence)
  else
    answers[i] = 0
  end
end
return answers`),
	give: redis.NewScript(`
local answers = {}
for i = 1, #KEYS do
  answers[i] = redis.call('GET', KEYS[i]) == ARGV[1] and redis.call('DEL', KEYS[i]) or 0
  redis.call('PUBLISH', KEYS[i], '')
end
return answers`),
}

// floors are the least without fences and notifications, and with them.
var floors = []impl{
	{name: "floor", open: func(s setup) (locker, error) { return openFloor(goRedis(s), bareScripts, 2) }},
	{name: "fenced-floor", open: func(s setup) (locker, error) { return openFloor(goRedis(s), fencedScripts, 2) }},
}

var errFloor = errors.New("the key is not free, or not ours")

// openFloor returns a floor with that many workers: with two, one encodes and decodes while the
// server works for the other. With one, calls for a key stay in order.
func openFloor(rdb *redis.Client, scripts floorScripts, workers int) (*floor, error) {
	f := &floor{
		onGoRedis: onGoRedis{rdb}, scripts: scripts, token: rand.Text(),
		calls: make(chan floorCall, 512), done: make(chan struct{}),
	}
	for _, script := range []*redis.Script{scripts.take, scripts.give} {
		if err := script.Load(context.Background(), f.rdb).Err(); err != nil {
			return nil, err
		}
	}
	for range workers {
		go f.serve()
	}
	return f, nil
}

func (f *floor) serve() {
	batch := floorBatch{keys: map[string]bool{}}
	for {
		if batch.next.answer == nil {
			select {
			case batch.next = <-f.calls:
			case <-f.done:
				return
			}
		}
		batch.collect(f)
		f.send(f.scripts.take, batch.takes, f.scripts.fenced, f.token, ttl.Milliseconds())
		f.send(f.scripts.give, batch.gives, false, f.token)
	}
}

// A floorBatch has one call for a key at the most, so that they stay in order.
type floorBatch struct {
	takes, gives []floorCall
	keys         map[string]bool
	next         floorCall // which is for the next batch, if it has an answer to come
}

// collect takes the next call and what waits, up to 128 more.
func (b *floorBatch) collect(f *floor) {
	b.takes, b.gives = b.takes[:0], b.gives[:0]
	clear(b.keys)
	for len(b.keys) < 129 && !b.keys[b.next.key] {
		b.keys[b.next.key] = true
		if b.next.script == f.scripts.take {
			b.takes = append(b.takes, b.next)
		} else {
			b.gives = append(b.gives, b.next)
		}
		select {
		case b.next = <-f.calls:
		default:
			b.next = floorCall{}
			return
		}
	}
}

func (f *floor) send(script *redis.Script, batch []floorCall, fenced bool, args ...any) {
	if len(batch) == 0 {
		return
	}
	keys := make([]string, 0, 2*len(batch))
	for _, call := range batch {
		keys = append(keys, call.key)
		if fenced {
			keys = append(keys, floorCounters[maphash.String(floorSeed, call.key)%uint64(len(floorCounters))])
		}
	}
	answers, err := script.EvalSha(context.Background(), f.rdb, keys, args...).Int64Slice()
	for i, call := range batch {
		if err == nil && answers[i] != 1 {
			call.answer <- errFloor
			continue
		}
		call.answer <- err
	}
}

// floorCounters are the names of the fence counters, as many as backend/single has.
var (
	floorCounters = func() (names [1024]string) {
		for i := range names {
			names[i] = fmt.Sprint("floor:fence:", i)
		}
		return names
	}()
	floorSeed = maphash.MakeSeed()
)

func (f *floor) take(_ context.Context, key string) (lease, error) {
	answer := make(chan error, 1)
	f.calls <- floorCall{key, f.scripts.take, answer}
	return answer, <-answer
}

func (f *floor) give(_ context.Context, key string, l lease) error {
	answer, _ := l.(chan error)
	f.calls <- floorCall{key, f.scripts.give, answer}
	return <-answer
}

func (f *floor) close() {
	close(f.done)
	f.onGoRedis.close()
}

// A lonelyFloor is the least for one caller, which shares scripts with no other.
type lonelyFloor struct {
	onGoRedis
	token string
}

func (f lonelyFloor) take(ctx context.Context, key string) (lease, error) {
	counter := floorCounters[maphash.String(floorSeed, key)%uint64(len(floorCounters))]
	return nil, f.run(ctx, fencedScripts.take, []string{key, counter}, f.token, ttl.Milliseconds())
}

func (f lonelyFloor) give(ctx context.Context, key string, _ lease) error {
	return f.run(ctx, fencedScripts.give, []string{key}, f.token)
}

func (f lonelyFloor) run(ctx context.Context, script *redis.Script, keys []string, args ...any) error {
	answers, err := script.Run(ctx, f.rdb, keys, args...).Int64Slice()
	if err == nil && answers[0] != 1 {
		return errFloor
	}
	return err
}

// A quorumFloor is the least for a RedLock: the floor on each node, and callers that wait for a
// majority.
type quorumFloor struct{ nodes []*floor }

func (q quorumFloor) take(_ context.Context, key string) (lease, error) {
	answers := make(chan error, 2*len(q.nodes)) // those of give come there as well
	for _, f := range q.nodes {
		f.calls <- floorCall{key, f.scripts.take, answers}
	}
	return answers, q.wait(answers, len(q.nodes)/2+1)
}

func (q quorumFloor) give(_ context.Context, key string, l lease) error {
	answers, _ := l.(chan error)
	for _, f := range q.nodes {
		f.calls <- floorCall{key, f.scripts.give, answers}
	}
	return q.wait(answers, len(q.nodes)) // of which some are those to take
}

func (quorumFloor) wait(answers chan error, n int) error {
	for range n {
		if err := <-answers; err != nil {
			return err
		}
	}
	return nil
}

func (q quorumFloor) ping(ctx context.Context) error { return q.nodes[0].ping(ctx) }

func (quorumFloor) close() {}

func openQuorumFloor(b *testing.B, clients []*redis.Client) (q quorumFloor) {
	for _, rdb := range clients {
		f, err := openFloor(rdb, fencedScripts, 1)
		require.NoError(b, err)
		b.Cleanup(func() { close(f.done) })
		q.nodes = append(q.nodes, f)
	}
	return q
}

// A bareConn is a connection without a client: it writes a command in one piece, and reads lines.
type bareConn struct {
	net.Conn
	lines *bufio.Reader
}

func dialBare(b *testing.B, addr string) bareConn {
	var d net.Dialer
	conn, err := d.DialContext(b.Context(), "tcp", addr)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return bareConn{conn, bufio.NewReader(conn)}
}

func (c bareConn) send(b *testing.B, args ...string) {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := c.Write([]byte(text.String()))
	require.NoError(b, err)
}

// until reads lines until one begins so.
func (c bareConn) until(b *testing.B, begin string) {
	for {
		line, err := c.lines.ReadString('\n')
		require.NoError(b, err)
		if strings.HasPrefix(line, begin) {
			return
		}
	}
}

// handOffFloor is the least time from a release to another process's acquire. A script deletes the
// key and publishes. The connection that receives the message wakes a goroutine, which asks for
// the key on a connection of its own.
func handOffFloor(b *testing.B, addr string) (took []time.Duration, trip time.Duration) {
	from, subscribed, to := dialBare(b, addr), dialBare(b, addr), dialBare(b, addr)
	const release = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1], '') end return 1"
	subscribed.send(b, "SUBSCRIBE", "floor")
	subscribed.until(b, ":1")
	trips := make([]time.Duration, 1000)
	for n := range trips {
		start := time.Now()
		from.send(b, "PING")
		from.until(b, "+PONG")
		trips[n] = time.Since(start)
	}
	trip, _ = percentiles(trips)
	for range b.N {
		from.send(b, "SET", "floor", "token", "NX", "PX", "8000")
		from.until(b, "+OK")
		woken, acquired := make(chan struct{}), make(chan time.Time)
		go func() { // the caller that waits
			<-woken
			to.send(b, "SET", "floor", "other", "NX", "PX", "8000")
			to.until(b, "+OK")
			acquired <- time.Now()
		}()
		go func() { // what reads messages
			subscribed.until(b, "message")
			close(woken)
		}()
		time.Sleep(settled)
		released := time.Now()
		from.send(b, "EVAL", release, "1", "floor", "token")
		took = append(took, (<-acquired).Sub(released))
		from.until(b, ":1")
		from.send(b, "DEL", "floor")
		from.until(b, ":1")
	}
	return took, trip
}
