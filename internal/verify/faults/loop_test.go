package faults_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// loopCommands are about clients that take leases again and again.
var loopCommands = map[string]command{
	// loop CLIENTS KEY,KEY… starts clients, until calm.
	"loop": func(c *child, args []string) (string, error) {
		n, err := strconv.Atoi(args[0])
		keys := strings.Split(args[1], ",")
		for range n {
			c.loops.Go(func() {
				for c.going.Err() == nil {
					c.turn(keys[rand.IntN(len(keys))])
				}
			})
		}
		return "", err
	},
	// calm ends the clients that loop has started, and waits for them.
	"calm": func(c *child, _ []string) (string, error) {
		c.stop()
		c.loops.Wait()
		c.going, c.stop = context.WithCancel(context.Background())
		return "", nil
	},
	// spin N keeps goroutines busy, until calm.
	"spin": func(c *child, args []string) (string, error) {
		n, err := strconv.Atoi(args[0])
		for range n {
			c.loops.Go(func() {
				for c.going.Err() == nil {
					for range 100_000 { //nolint:revive // which is the work
					}
				}
			})
		}
		return "", err
	},
}

// turn acquires a lease, writes under it for a while, and releases it. One in ten lasts for more
// than a TTL.
func (c *child) turn(key string) {
	ctx, cancel := context.WithTimeout(c.going, c.TTL+rand.N(2*c.TTL))
	defer cancel()
	h, err := c.acquire(ctx, key, guard.WithWait(guard.Forever))
	if err != nil {
		time.Sleep(rand.N(10 * time.Millisecond)) // before it tries again
		return
	}
	work := rand.N(30 * time.Millisecond)
	if rand.IntN(10) == 0 {
		work += c.TTL
	}
	// the work
	for start := time.Now(); ; time.Sleep(time.Millisecond + rand.N(5*time.Millisecond)) {
		if _, err := h.write(); err != nil {
			break
		}
		if !h.lease.Valid() || time.Since(start) > work || c.going.Err() != nil {
			break
		}
	}
	err = h.release(context.WithoutCancel(ctx))
	if errors.Is(err, guard.ErrLost) {
		_, _ = h.write() // as one that ignores its context does
	}
}
