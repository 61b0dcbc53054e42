package guard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A crowd simulates the callers of two processes. They contend for one key with random options,
// while the store fails at random.
type crowd struct {
	mu       sync.Mutex
	rng      *rand.Rand
	inside   int
	fence    uint64
	runs     int
	handOffs int
	t        *testing.T
}

func (c *crowd) chance(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64() < p
}

func (c *crowd) upTo(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.rng.Int64N(int64(d)))
}

// store returns the store as one process sees it: slow, and with lost requests and replies.
func (c *crowd) store(inner guard.Locker, loss float64) guard.Locker {
	trouble := func(ctx context.Context) bool {
		select {
		case <-time.After(c.upTo(2 * time.Millisecond)):
		case <-ctx.Done():
			return true
		}
		return c.chance(loss)
	}
	return &guardtest.Scripted{
		OnAcquire: func(ctx context.Context, _ int, claim driver.Claim) (g driver.Answer, err error) {
			lost := trouble(ctx)
			if !lost {
				g, err = inner.TryAcquire(context.Background(), claim)
			}
			if trouble(ctx) || lost {
				return driver.Answer{}, guardtest.Fail(driver.KindConnection)
			}
			return g, err
		},
		OnRenew: func(ctx context.Context, _ int, claim driver.Claim) (held bool, err error) {
			if trouble(ctx) {
				return false, guardtest.Fail(driver.KindConnection)
			}
			return inner.Renew(context.Background(), claim)
		},
		OnRelease: func(ctx context.Context, _ int, claim driver.Claim, after driver.After) (held bool, err error) {
			lost := trouble(ctx)
			if !lost {
				held, err = inner.Release(context.Background(), claim, after)
			}
			if trouble(ctx) || lost {
				return false, guardtest.Fail(driver.KindConnection)
			}
			return held, err
		},
	}
}

func (c *crowd) options() (opts []guard.Option) {
	opts = []guard.Option{guard.WithWait(c.upTo(300 * time.Millisecond))}
	for _, rare := range []guard.Option{
		guard.WithWait(0), guard.WithWait(guard.Forever), guard.WithTTL(250 * time.Millisecond), guard.WithOnce(time.Millisecond), guard.WithMinHold(3 * time.Millisecond),
		guard.WithMaxHold(2 * time.Millisecond), guard.WithoutRenewal(), guard.WithOwner("somebody"),
	} {
		if c.chance(0.05) {
			opts = append(opts, rare)
		}
	}
	return append(opts, guard.WithHook(guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
		if e.Grant == guard.GrantHandOff {
			c.mu.Lock()
			c.handOffs++
			c.mu.Unlock()
		}
	}}))
}

// run is the function that runs under the lease. It stops when its context ends.
func (c *crowd) run(ctx context.Context) error {
	c.mu.Lock()
	c.inside++
	fence := guard.Fence(ctx)
	if c.inside != 1 {
		c.t.Errorf("%d runs hold the key", c.inside)
	}
	if fence <= c.fence {
		c.t.Errorf("fence %d follows fence %d", fence, c.fence)
	}
	c.fence = fence
	c.runs++
	c.mu.Unlock()
	takes := c.upTo(time.Millisecond)
	if c.chance(0.05) {
		takes = c.upTo(400 * time.Millisecond)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.inside--
	c.mu.Unlock()
	switch {
	case c.chance(0.02):
		panic("boom")
	case c.chance(0.1):
		return errors.New("failed")
	}
	return nil
}

func (c *crowd) call(g *guard.Guard) {
	defer func() { _ = recover() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.chance(0.2) {
		ctx, cancel = context.WithTimeout(ctx, c.upTo(50*time.Millisecond))
		defer cancel()
	}
	start := time.Now()
	err := g.Do(ctx, "k", c.run, c.options()...)
	if ctx.Err() != nil && errors.Is(err, guard.ErrBusy) && time.Since(start) > time.Second {
		c.t.Errorf("the call returned %v after its start: %v", time.Since(start), err)
	}
}

func TestQueue_excludesUnderRandomFaults(t *testing.T) {
	runs, handOffs := 0, 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{rng: rand.New(rand.NewPCG(seed, 0)), t: t}
			inner := memory.New()
			loss := []float64{0, 0.01, 0.1}[seed%3]
			var all sync.WaitGroup
			var guards []*guard.Guard
			for range 2 {
				g := openGuard(t, c.store(inner, loss), guard.WithTTL(200*time.Millisecond))
				guards = append(guards, g)
				for range 10 {
					all.Go(func() {
						for range 10 {
							c.call(g)
						}
					})
				}
			}
			all.Wait()
			for _, g := range guards {
				require.Zero(t, guard.Queues(g))
				require.NoError(t, g.Close(t.Context()))
			}
			time.Sleep(5 * time.Millisecond) // longer than a minimum hold and a done marker last
			grant, err := inner.TryAcquire(t.Context(), driver.Claim{Key: "k", ID: "probe", Owner: "probe", TTL: time.Second})
			require.NoError(t, err)
			require.Equal(t, driver.Granted, grant.State, "Close has returned nil")
			require.Greater(t, grant.Fence, c.fence)
			runs, handOffs = runs+c.runs, handOffs+c.handOffs
		})
		if t.Failed() {
			t.Fatal("seed", seed)
		}
	}
	require.Greater(t, runs, 60*50)
	require.Greater(t, handOffs, runs/10)
	t.Logf("%d runs, %d of them by hand-off", runs, handOffs)
}
