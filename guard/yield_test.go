package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

const trip = time.Millisecond

// rounds are those for a key that other processes want as well.
type rounds struct {
	t     *testing.T
	store *pushing
	g     *guard.Guard
	wake  func()
	has   guard.Claim // the other that has the key
	n     int
}

// newRounds returns a key that another has, for which callers of a Guard wait, whose store takes a trip to answer, but much longer to the first request.
func newRounds(t *testing.T) (*rounds, *callers) {
	r := &rounds{t: t, store: &pushing{testStore: newTestStore(), wakes: make(chan func(), 10)}}
	r.store.OnAcquire = func(ctx context.Context, n int, c guard.Claim) (guard.Grant, error) {
		if n == 1 {
			time.Sleep(50 * trip) // it has to connect
		}
		time.Sleep(trip / 2)
		defer time.Sleep(trip / 2)
		return r.store.memory.TryAcquire(ctx, c)
	}
	r.store.OnRelease = func(ctx context.Context, _ int, c guard.Claim, after guard.After) (bool, error) {
		defer time.Sleep(trip)
		return r.store.memory.Release(ctx, c, after)
	}
	g, err := guard.New(r.store, guard.WithTTL(ttl), guard.WithWait(guard.Forever))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	r.g = g
	r.take()
	c := newCallers(t, g)
	c.start(t.Context(), time.Second)
	r.wake = <-r.store.wakes
	r.wake() // it listens
	time.Sleep(time.Second)
	return r, c
}

// take has another take the key.
func (r *rounds) take() {
	r.n++
	id := fmt.Sprint("other ", r.n)
	r.has = guard.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}
	grant, err := r.store.memory.TryAcquire(r.t.Context(), r.has)
	require.NoError(r.t, err)
	require.Equal(r.t, guard.Granted, grant.State)
}

// asks returns how long after the other's release the Guard has asked for the key, which yet another has by then if taken says so.
func (r *rounds) asks(taken bool) time.Duration {
	r.store.leave(r.t, r.has, guard.After{})
	released := time.Now()
	if taken {
		r.take()
	}
	asked := r.store.count(guard.OpAcquire)
	r.wake()
	synctest.Wait()
	time.Sleep(10 * trip)
	require.Equal(r.t, asked+1, r.store.count(guard.OpAcquire), "it asks once")
	calls := r.store.Calls()
	for i := len(calls) - 1; ; i-- {
		if calls[i].Op == guard.OpAcquire {
			return calls[i].Start.Sub(released)
		}
	}
}

func TestLine_asksAtOnceWhenTheKeyIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRounds(t)
		require.Zero(t, r.asks(false))
		c.requireOrder(0)
	})
}

func TestLine_asksAtOnceHoweverOftenItWasTooLateUntilItHadTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRounds(t)
		for range 5 {
			require.Zero(t, r.asks(true))
		}
		require.Zero(t, r.asks(false))
		c.requireOrder(0)
	})
}

// releases waits until the caller that was granted the key pause after the last ring gives it back, and has another take it.
func (r *rounds) releases(pause time.Duration) {
	time.Sleep(pause + trip + time.Second - 10*trip + trip/2) // the release is on its way back by now
	asked := r.store.count(guard.OpAcquire)
	r.take()
	r.wake() // its own release
	time.Sleep(3*trip - 1)
	require.Equal(r.t, asked, r.store.count(guard.OpAcquire), "others hear of it later than it does")
	time.Sleep(2 * trip)
	require.Equal(r.t, asked+1, r.store.count(guard.OpAcquire))
	r.wake() // for nothing: the same one has the key
	time.Sleep(10 * trip)
}

// asksAfter checks how long after a ring the Guard asks at least, and half a trip later at most, and returns the time.
func (r *rounds) asksAfter(least time.Duration, taken bool) time.Duration {
	after := r.asks(taken)
	require.GreaterOrEqual(r.t, after, least)
	require.LessOrEqual(r.t, after, least+trip/2)
	return after
}

// Who is the nearest would always be the first to ask.
func TestLine_leavesTheKeyToOthersWhenItHasHadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRounds(t)
		for range 6 {
			c.start(t.Context(), time.Second) // too long to be handed on
		}
		r.releases(r.asks(false))
		// It does not know yet of how many others there are.
		r.asksAfter(2*trip, true)
		r.asksAfter(trip, true)
		for range 3 {
			require.Zero(t, r.asks(true))
		}
		r.releases(r.asks(false))
		// It was the first as soon as it was its turn: there may be more of them.
		r.asksAfter(2*trip, true)
		r.asksAfter(trip, true)
		r.asksAfter(trip/2, true)
		require.Zero(t, r.asks(true))
		r.releases(r.asks(false))
		r.asksAfter(2*trip, true)
		r.asksAfter(trip, true)
		r.asksAfter(trip/2, true)
		r.releases(r.asksAfter(trip/2, false))
		// They have left the key to it: there are fewer of them.
		r.asksAfter(2*trip, true)
		r.asksAfter(trip, true)
		r.releases(r.asksAfter(trip/2, false))
		r.asksAfter(2*trip, true)
		r.releases(r.asksAfter(trip, false))
		// But three at least are reckoned with.
		r.asksAfter(2*trip, true)
		r.asksAfter(trip, true)
		require.Zero(t, r.asks(false))
		time.Sleep(3 * time.Second)
		c.requireOrder(0, 1, 2, 3, 4, 5, 6)
	})
}
