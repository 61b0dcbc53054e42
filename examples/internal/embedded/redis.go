// Package embedded has a Redis and a database for examples that need only Go. Its functions panic
// if the machine has no port or no disk left.
package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Redis starts a Redis in this process. It returns the address, and a function that stops it.
func Redis() (addr string, stop func()) {
	own := miniredis.NewMiniRedis()
	if err := own.Start(); err != nil {
		panic(err)
	}
	own.Server().SetPreHook(passTime(own))
	return own.Addr(), own.Close
}

// passTime returns a hook that advances the server's clock before each script. Without it, time
// stands still in the server, and no lease expires. It is faster than miniredis's ClockTTL, which
// looks at all keys for each command within a script.
func passTime(own *miniredis.Miniredis) server.Hook {
	// A key can expire too early by one step. The margin of a Guard is larger.
	const step = 5 * time.Millisecond
	var mu sync.Mutex
	last := time.Now()
	return func(_ *server.Peer, command string, _ ...string) bool {
		if command != "EVALSHA" && command != "EVAL" {
			return false // it may come from within a script, which holds the server's lock
		}
		mu.Lock()
		defer mu.Unlock()
		if passed := time.Since(last); passed >= step {
			last = last.Add(passed)
			own.FastForward(passed)
		}
		return false // false: the command runs
	}
}
