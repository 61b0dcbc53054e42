package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// startRedis returns the address of a Redis that answers: addr, or, where that is empty, one inside this
// process. The caller must call stop.
func startRedis(ctx context.Context, addr string) (address string, stop func(), err error) {
	if addr != "" {
		return addr, func() {}, ping(ctx, addr)
	}
	own := miniredis.NewMiniRedis()
	if err := own.Start(); err != nil {
		return "", nil, fmt.Errorf("start a Redis of our own: %w", err)
	}
	own.Server().SetPreHook(passTime(own))
	return own.Addr(), own.Close, nil
}

// passTime returns a hook that has time pass in the server before each script: by itself it stands still
// there, and the lease of a dead process would never end. Miniredis has ClockTTL for that, which looks at every
// key for every command within a script: with the thousands of keys of an example, that took most of the time.
func passTime(own *miniredis.Miniredis) server.Hook {
	const step = 5 * time.Millisecond // by as much a key may end too soon; guards allow for four times that
	var mu sync.Mutex
	last := time.Now()
	return func(_ *server.Peer, command string, _ ...string) bool {
		if command != "EVALSHA" && command != "EVAL" {
			return false // it may come from within a script, which has the server's lock
		}
		mu.Lock()
		defer mu.Unlock()
		if passed := time.Since(last); passed >= step {
			last = last.Add(passed)
			own.FastForward(passed)
		}
		return false // the command goes on
	}
}

func ping(ctx context.Context, addr string) error {
	logging.Disable() // what go-redis would log is in the error
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("-redis %s: no Redis answers there: %w", addr, err)
	}
	return nil
}
