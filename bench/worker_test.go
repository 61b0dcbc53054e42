package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard"
)

// A job is what a worker process does: so many callers take the key and give it back for a while.
type job struct {
	Impl, Addr, Key string
	Callers         int
	For             time.Duration
	Audit           string // the prefix of the keys that holders check each other by, or empty
}

// An outcome is the result of a job.
type outcome struct {
	Pairs []int // of each caller
	Stale int64 // fences that were not above all that had been shown
	Error string
}

// work is the worker's main. It says "ready", waits for a line, and says its outcome.
func work(text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	at := slices.IndexFunc(impls, func(i impl) bool { return i.name == j.Impl })
	l, err := impls[at].open(setup{addr: j.Addr, ttl: ttl})
	if err == nil {
		warm := fmt.Sprint(j.Key, ":warm:", os.Getpid())
		var held lease
		if held, err = takeFor(l, warm); err == nil {
			err = l.give(context.Background(), warm, held)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()
	out, err := json.Marshal(j.do(l))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println(string(out))
	l.close()
}

func (j job) do(l locker) outcome {
	o := outcome{Pairs: make([]int, j.Callers)}
	a := &audit{prefix: j.Audit, rdb: goRedis(setup{addr: j.Addr})}
	defer a.rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), j.For)
	defer cancel()
	var all sync.WaitGroup
	for n := range o.Pairs {
		all.Go(func() {
			for ctx.Err() == nil {
				held, err := l.take(ctx, j.Key)
				if err != nil {
					continue // the time is up, or the locker has had enough
				}
				a.check(held)
				o.Pairs[n]++
				// not ctx: the lease is released even if the time is up
				if err := l.give(context.Background(), j.Key, held); err != nil {
					a.fail(err)
				}
			}
		})
	}
	all.Wait()
	o.Stale = a.stale.Load()
	if err, ok := a.failed.Load().(error); ok {
		o.Error = err.Error()
	}
	return o
}

// An audit is how holders check each other in Redis.
type audit struct {
	prefix string
	rdb    *redis.Client
	stale  atomic.Int64
	failed atomic.Value
}

func (a *audit) fail(err error) { a.failed.Store(fmt.Errorf("%w", err)) }

// showFence answers 1 if the fence is above all that were shown before.
var showFence = redis.NewScript(`
if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[1]) or '0') then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1`)

// check is what a holder does if there is an audit.
func (a *audit) check(held lease) {
	if a.prefix == "" {
		return
	}
	ctx := context.Background()
	l := held.(*guard.Lease)
	n, err := a.rdb.Get(ctx, a.prefix+":count").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		a.fail(err)
	}
	above, err := showFence.Run(ctx, a.rdb, []string{a.prefix + ":fence"}, fmt.Sprint(l.Fence())).Int()
	if err != nil {
		a.fail(err)
	}
	if above == 0 {
		a.stale.Add(1)
	}
	if err := a.rdb.Set(ctx, a.prefix+":count", n+1, 0).Err(); err != nil {
		a.fail(err)
	}
}
