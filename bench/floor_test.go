package bench

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/redis/go-redis/v9"
)

// A floor is the least that a library can do whose calls block their callers: it collects what
// comes while a script is under way, and one script serves all of that. It has no fences, ends no
// call with its context, and renews nothing. What it takes is a script for many keys by go-redis,
// and a wake-up for each call.
type floor struct {
	rdb   *redis.Client
	token string
	calls chan *floorCall
	done  chan struct{}
}

type floorCall struct {
	key    string
	script *redis.Script
	answer chan error
}

var (
	takeMany = redis.NewScript(`
local answers = {}
for i = 1, #KEYS do
  answers[i] = redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2], 'NX') and 1 or 0
end
return answers`)
	giveMany = redis.NewScript(`
local answers = {}
for i = 1, #KEYS do
  answers[i] = redis.call('GET', KEYS[i]) == ARGV[1] and redis.call('DEL', KEYS[i]) or 0
end
return answers`)
	errFloor = errors.New("the key is not free, or not ours")
)

func openFloor(s setup) (locker, error) {
	f := &floor{rdb: goRedis(s), token: rand.Text(), calls: make(chan *floorCall, 512), done: make(chan struct{})}
	for _, script := range []*redis.Script{takeMany, giveMany} {
		if err := script.Load(context.Background(), f.rdb).Err(); err != nil {
			return nil, err
		}
	}
	for range 2 { // one encodes and decodes while the server works for the other
		go f.serve()
	}
	return f, nil
}

func (f *floor) serve() {
	var batches [2][]*floorCall
	for {
		select {
		case call := <-f.calls:
			f.collect(&batches, call)
		case <-f.done:
			return
		}
		f.send(takeMany, batches[0], f.token, ttl.Milliseconds())
		f.send(giveMany, batches[1], f.token)
		batches[0], batches[1] = batches[0][:0], batches[1][:0]
	}
}

// collect takes the call and what waits, up to 128 more.
func (f *floor) collect(batches *[2][]*floorCall, call *floorCall) {
	for n := 0; ; n++ {
		kind := 0
		if call.script == giveMany {
			kind = 1
		}
		batches[kind] = append(batches[kind], call)
		if n == 128 {
			return
		}
		select {
		case call = <-f.calls:
		default:
			return
		}
	}
}

func (f *floor) send(script *redis.Script, batch []*floorCall, args ...any) {
	if len(batch) == 0 {
		return
	}
	keys := make([]string, len(batch))
	for i, call := range batch {
		keys[i] = call.key
	}
	answers, err := script.EvalSha(context.Background(), f.rdb, keys, args...).Int64Slice()
	for i, call := range batch {
		if err == nil && answers[i] != 1 {
			err = errFloor
		}
		call.answer <- err
	}
}

func (f *floor) take(_ context.Context, key string) (lease, error) {
	call := &floorCall{key: key, script: takeMany, answer: make(chan error, 1)}
	f.calls <- call
	return call, <-call.answer
}

func (f *floor) give(_ context.Context, _ string, l lease) error {
	call, _ := l.(*floorCall)
	call.script = giveMany
	f.calls <- call
	return <-call.answer
}

func (f *floor) ping(ctx context.Context) error { return f.rdb.Ping(ctx).Err() }

func (f *floor) close() {
	close(f.done)
	_ = f.rdb.Close()
}
