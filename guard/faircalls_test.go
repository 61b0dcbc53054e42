package guard_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// fairStore is a testStore that keeps a queue of claims.
type fairStore struct {
	*testStore
	silent bool // it sends no notifications, not even at the start of a subscription
	late   bool // it notifies a waiter once more after the waiter has unsubscribed
}

func (s *fairStore) Describe() driver.Description {
	return driver.Description{Owners: true, Queue: true, Polls: true}
}

func (s *fairStore) Subscribe(key, id string, notify func(in time.Duration)) (stop func()) {
	if s.silent {
		return func() {}
	}
	unsubscribe := s.memory.Subscribe(key, id, notify)
	return func() {
		unsubscribe()
		if s.late {
			go notify(0)
		}
	}
}

// fairCalls are the calls of several Guards over one store. Each Guard stands for a process.
type fairCalls struct {
	t      *testing.T
	store  *fairStore
	guards []*guard.Guard
	all    sync.WaitGroup

	mu     sync.Mutex
	ran    []int           // the numbers of the calls, in the order in which they ran
	at     []time.Duration // when each of them began to run
	fences []uint64
	errs   map[int]error
	begun  time.Time
}

// withFairGuards runs f in virtual time with n fair Guards over one store, and then waits for all
// calls.
func withFairGuards(t *testing.T, n int, f func(c *fairCalls), opts ...guard.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &fairCalls{t: t, store: &fairStore{testStore: newTestStore()}, errs: map[int]error{}, begun: time.Now()}
		defer func() { // even if f has failed
			for _, g := range c.guards {
				_ = g.Close(context.Background())
			}
		}()
		for range n {
			g := openGuard(t, c.store, append([]guard.Option{guard.WithTTL(ttl), guard.WithFair(), guard.WithWait(guard.Forever)}, opts...)...)
			c.guards = append(c.guards, g)
		}
		f(c)
		c.all.Wait()
		for _, g := range c.guards {
			require.NoError(t, g.Close(context.Background()))
		}
	})
}

// call starts call number i, whose function takes the given time. The calls use the Guards in
// turn. It returns when the call blocks or has ended.
func (c *fairCalls) call(ctx context.Context, i int, takes time.Duration, opts ...guard.Option) {
	c.all.Go(func() {
		err := c.guards[i%len(c.guards)].Do(ctx, "k", func(ctx context.Context) error {
			c.mu.Lock()
			c.ran, c.at = append(c.ran, i), append(c.at, time.Since(c.begun))
			c.fences = append(c.fences, guard.Fence(ctx))
			c.mu.Unlock()
			time.Sleep(takes)
			return nil
		}, opts...)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs[i] = err
	})
	synctest.Wait()
}

// err returns the error of call number i.
func (c *fairCalls) err(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs[i]
}

// addFrozenWaiter queues a claim of a process that has subscribed, and stands still.
func (c *fairCalls) addFrozenWaiter(id string) {
	c.t.Cleanup(c.store.memory.Subscribe("k", id, func(time.Duration) {}))
	c.addDeadWaiter(id)
}

// addDeadWaiter queues a claim that never asks again, and that nobody waits for.
func (c *fairCalls) addDeadWaiter(id string) {
	g, err := c.store.memory.TryAcquire(c.t.Context(), driver.Claim{Key: "k", ID: id, Owner: id, TTL: ttl, Queue: driver.Queued})
	require.NoError(c.t, err)
	require.Equal(c.t, driver.Busy, g.State)
}
