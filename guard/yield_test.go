package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// trip is a round trip to the store.
const trip = time.Millisecond

// rounds simulates a Guard and other processes that want the same key.
type rounds struct {
	t      *testing.T
	store  *notifyingStore
	g      *guard.Guard
	wake   func()
	holder driver.Claim // of the other process that holds the key
	n      int          // how many other processes have held it
}

// newRounds returns a Guard with one waiter, for a key that another process holds. The store
// answers after one round trip, but the first request takes much longer.
func newRounds(t *testing.T) (*rounds, *callers) {
	r := &rounds{t: t, store: &notifyingStore{testStore: newTestStore(), wakes: make(chan func(), 10)}}
	r.store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
		if n == 1 {
			time.Sleep(50 * trip) // the client connects first
		}
		time.Sleep(trip / 2)
		defer time.Sleep(trip / 2)
		return r.store.memory.TryAcquire(ctx, c)
	}
	r.store.OnRelease = func(ctx context.Context, _ int, c driver.Claim, after driver.After) (bool, error) {
		defer time.Sleep(trip)
		return r.store.memory.Release(ctx, c, after)
	}
	g := openGuard(t, r.store, guard.WithTTL(ttl), guard.WithWait(guard.Forever))
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	r.g = g
	r.acquireElsewhere()
	c := newCallers(t, g)
	c.start(t.Context(), time.Second)
	r.wake = <-r.store.wakes
	r.wake() // the subscription has begun
	time.Sleep(time.Second)
	return r, c
}

// acquireElsewhere acquires the key for another process.
func (r *rounds) acquireElsewhere() {
	r.n++
	id := fmt.Sprint("other ", r.n)
	r.holder = driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}
	grant, err := r.store.memory.TryAcquire(r.t.Context(), r.holder)
	require.NoError(r.t, err)
	require.Equal(r.t, driver.Granted, grant.State)
}

// delay releases the key and returns how long after that the Guard asked for it. If taken is set,
// another process acquires the key first.
func (r *rounds) delay(taken bool) time.Duration {
	r.store.release(r.t, r.holder, driver.After{})
	released := time.Now()
	if taken {
		r.acquireElsewhere()
	}
	asked := r.store.count(driver.OpAcquire)
	r.wake()
	synctest.Wait()
	time.Sleep(10 * trip)
	require.Equal(r.t, asked+1, r.store.count(driver.OpAcquire), "the Guard asks once")
	calls := r.store.Calls()
	for i := len(calls) - 1; ; i-- {
		if calls[i].Op == driver.OpAcquire {
			return calls[i].Start.Sub(released)
		}
	}
}

func TestQueue_asksAtOnceWhenTheKeyIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRounds(t)
		require.Zero(t, r.delay(false))
		c.requireOrder(0)
	})
}

func TestQueue_doesNotYieldUntilItHasHadTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRounds(t)
		for range 5 {
			require.Zero(t, r.delay(true))
		}
		require.Zero(t, r.delay(false))
		c.requireOrder(0)
	})
}

// yields waits until the Guard's caller releases the key, and has another process acquire it. The
// Guard must then wait for three round trips before it asks. pause is how long after the last
// notification the caller was granted the key.
func (r *rounds) yields(pause time.Duration) {
	// The answer to the release is on its way by now.
	time.Sleep(pause + trip + time.Second - 10*trip + trip/2)
	asked := r.store.count(driver.OpAcquire)
	r.acquireElsewhere()
	r.wake() // for its own release
	time.Sleep(3*trip - 1)
	require.Equal(r.t, asked, r.store.count(driver.OpAcquire), "other processes are notified later than the Guard")
	time.Sleep(2 * trip)
	require.Equal(r.t, asked+1, r.store.count(driver.OpAcquire))
	r.wake() // without effect: the same process holds the key
	time.Sleep(10 * trip)
}

// requireDelay asserts that the Guard asks no earlier than least, and at most half a round trip
// later. It returns the delay.
func (r *rounds) requireDelay(least time.Duration, taken bool) time.Duration {
	after := r.delay(taken)
	require.GreaterOrEqual(r.t, after, least)
	require.LessOrEqual(r.t, after, least+trip/2)
	return after
}

// Without the pause, the process nearest to the store would always ask first.
func TestQueue_yieldsToOtherProcessesAfterItHasHadTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRounds(t)
		for range 6 {
			c.start(t.Context(), time.Second) // longer than the hand-off period
		}
		r.yields(r.delay(false))
		for range 4 {
			r.requireDelay(2*trip, true)
			r.requireDelay(trip, true)
			for range 3 {
				require.Zero(t, r.delay(true))
			}
			r.yields(r.delay(false))
		}
		r.requireDelay(2*trip, true)
		r.yields(r.requireDelay(trip, false)) // no other process has acquired the key
		r.requireDelay(2*trip, true)
		r.requireDelay(trip, true)
		require.Zero(t, r.delay(false))
		time.Sleep(3 * time.Second)
		c.requireOrder(0, 1, 2, 3, 4, 5, 6)
	})
}
