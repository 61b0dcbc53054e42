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

// Who is the nearest would always be the first to ask, and that for its own release is nearer than all.
func TestLine_leavesTheKeyToOthersWhenItHasHadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRounds(t)
		c.start(t.Context(), 0)
		require.Zero(t, r.asks(false))
		time.Sleep(trip + time.Second - 10*trip + trip/2) // it is giving the key back, which was held for too long to be handed on
		asked := r.store.count(guard.OpAcquire)
		r.take()
		r.wake() // its own release
		time.Sleep(2 * trip)
		require.Equal(t, asked, r.store.count(guard.OpAcquire))
		time.Sleep(3 * trip)
		require.Equal(t, asked+1, r.store.count(guard.OpAcquire), "the one to whom it has left the key is the first who was faster")
		r.wake() // for nothing: the same one has the key
		time.Sleep(10 * trip)
		for lost := 1; lost < 3; lost++ {
			after := r.asks(true)
			require.GreaterOrEqual(t, after, time.Duration(3-lost)*trip)
			require.LessOrEqual(t, after, time.Duration(4-lost)*trip)
		}
		for range 3 {
			require.Zero(t, r.asks(true), "the others had their turns")
		}
		require.Zero(t, r.asks(false))
		c.requireOrder(0, 1)
	})
}
