package stage

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newClient returns a client of one server, at the address. The other settings let it fail
// quickly, and without log lines, if the server is not there. Guards try again by themselves, and
// return errors that say what is wrong.
func newClient(addr string) *redis.Client {
	logging.Disable()
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1,
		// Where go-redis finds out by itself that a server has no such notifications, connections
		// that are made at the same time race to note that down (v9.23, with a client and a
		// redis.Conn of it).
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// startRedis starts n Redis servers inside this process, which know nothing of each other, and
// returns their addresses. The caller must call stop.
func startRedis(n int) (addrs []string, stop func(), err error) {
	var started []*miniredis.Miniredis
	stop = func() {
		for _, own := range started {
			own.Close()
		}
	}
	for range n {
		own := miniredis.NewMiniRedis()
		if err := own.Start(); err != nil {
			stop()
			return nil, nil, fmt.Errorf("start a Redis of our own: %w", err)
		}
		own.Server().SetPreHook(passTime(own))
		started = append(started, own)
		addrs = append(addrs, own.Addr())
	}
	return addrs, stop, nil
}

// passTime returns a hook that has time pass in the server before each script: by itself it stands
// still there, and the lease of a dead process would never end. Miniredis has ClockTTL for that,
// which looks at every key for every command within a script: with the thousands of keys of an
// example, that took most of the time.
func passTime(own *miniredis.Miniredis) server.Hook {
	// by as much a key may end too soon; guards allow for four times that
	const step = 5 * time.Millisecond
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
