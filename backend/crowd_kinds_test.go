package backend_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A wait is a crowd of Guards, each with a call that waits for the key of another Guard's lease.
type wait struct {
	crowd
	t       *testing.T
	rdb     redis.UniversalClient
	backend string
	cancels []context.CancelFunc // of each waiter
	inside  sync.WaitGroup       // has one for each waiter until its function is called
}

// A waitEnd is how the key becomes free, and what the waiters do.
type waitEnd struct {
	only   string         // a backend, or "" for all
	opts   []guard.Option // of the waiters
	mixed  []guard.Option // of every second waiter instead
	shares bool           // all waiters are to hold the key at the same time
	want   error
	hold   func(w *wait) (end func())
}

func (w *wait) holds(opts ...guard.Option) *guard.Lease {
	w.t.Helper()
	lease, err := w.guards[0].Acquire(w.t.Context(), "k", opts...)
	require.NoError(w.t, err)
	return lease
}

// released has the key released by its holder.
func released(opts ...guard.Option) func(*wait) func() {
	return func(w *wait) func() {
		lease := w.holds(opts...)
		return func() { require.NoError(w.t, lease.Release(w.t.Context())) }
	}
}

var waitEnds = map[string]waitEnd{
	"a release":                        {hold: released()},
	"a release, for those that share":  {opts: []guard.Option{guard.WithShared()}, shares: true, hold: released()},
	"a release, for those of a limit":  {opts: []guard.Option{guard.WithLimit(crowdWaits)}, shares: true, hold: released()},
	"a release, for some that share":   {mixed: []guard.Option{guard.WithShared()}, hold: released()},
	"the last one that shares":         {hold: released(guard.WithShared())},
	"one of a limit":                   {opts: []guard.Option{guard.WithLimit(2)}, hold: oneOfTwo},
	"a release after a minimum hold":   {hold: released(guard.WithMinHold(500 * time.Millisecond))},
	"the key is done":                  {opts: []guard.Option{guard.WithOnce(time.Hour)}, want: guard.ErrDone, hold: done},
	"an operator breaks the lease":     {hold: broken},
	"the lease expires":                {hold: expires},
	"most waiters leave at a release":  {hold: deserted},
	"subscriptions break at a release": {hold: disconnected},
	"Redisson unlocks":                 {only: "reentrant", hold: unlocked},
}

func oneOfTwo(w *wait) func() {
	other := w.holds(guard.WithLimit(2))
	w.t.Cleanup(func() { _ = other.Release(context.Background()) })
	return released(guard.WithLimit(2))(w)
}

func done(w *wait) func() {
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- w.guards[0].Do(context.Background(), "k", func(context.Context) error {
			close(began)
			<-end
			return nil
		}, guard.WithOnce(time.Hour))
	}()
	<-began
	return func() {
		close(end)
		require.NoError(w.t, <-ended)
	}
}

func broken(w *wait) func() {
	lease := w.holds()
	w.t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return func() {
		inspector, _ := w.guards[0].Adapter().Inspector()
		info, err := inspector.Show(w.t.Context(), "k")
		require.NoError(w.t, err)
		broken, err := inspector.Break(w.t.Context(), "k", info.Holders[0].ID, driver.Break{Now: true})
		require.NoError(w.t, err)
		require.True(w.t, broken)
	}
}

func expires(w *wait) func() {
	locker := backends[w.backend](w.rdb)
	a, err := locker.TryAcquire(w.t.Context(), driver.Claim{Key: "k", ID: "dead", Owner: "dead", TTL: 2 * time.Second})
	require.NoError(w.t, err)
	require.Equal(w.t, driver.Granted, a.State)
	return func() {}
}

func deserted(w *wait) func() {
	lease := w.holds()
	return func() {
		require.NoError(w.t, lease.Release(w.t.Context()))
		for _, cancel := range w.cancels[2:] {
			cancel()
		}
	}
}

func disconnected(w *wait) func() {
	lease := w.holds()
	return func() {
		require.NoError(w.t, w.rdb.ClientKillByFilter(w.t.Context(), "TYPE", "pubsub").Err())
		require.NoError(w.t, lease.Release(w.t.Context()))
	}
}

func unlocked(w *wait) func() {
	java := redissontest.New(w.rdb)
	lock := java.Lock("k")
	_, _, err := lock.TryLock(w.t.Context(), 1, time.Hour)
	require.NoError(w.t, err)
	return func() {
		_, err := lock.Unlock(w.t.Context(), 1)
		require.NoError(w.t, err)
	}
}

// crowdWaits is how many wait: most of them are told to ask later.
const crowdWaits = 12

// Whatever frees the key, all waiters soon get it, or learn that it is done. Nothing but a
// notification has them ask before a minute has passed, unless the lease expires.
func TestCrowd_everyWaiterIsServedSoon(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"single", "reentrant"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			for name, end := range waitEnds {
				if end.only != "" && end.only != backend {
					continue
				}
				t.Run(name, func(t *testing.T) {
					server := redistest.Start(t)
					w := &wait{t: t, backend: backend, rdb: server.Client(t)}
					w.crowd = *newCrowd(t, server, backend, 1+crowdWaits)
					w.serves(end)
				})
			}
		})
	}
}

func (w *wait) serves(by waitEnd) {
	w.t.Helper()
	end := by.hold(w)
	results := make(chan error, crowdWaits)
	w.inside.Add(crowdWaits)
	for i, g := range w.guards[1:] {
		opts := by.opts
		if i%2 == 1 && by.mixed != nil {
			opts = by.mixed
		}
		ctx, cancel := context.WithCancel(w.t.Context())
		w.cancels = append(w.cancels, cancel)
		go func() {
			results <- g.Do(ctx, "k", func(context.Context) error {
				w.inside.Done()
				if by.shares {
					w.inside.Wait()
				}
				return nil
			}, opts...)
		}()
	}
	w.expectCrowd()
	start := time.Now()
	end()
	for range crowdWaits {
		select {
		case err := <-results:
			if !errors.Is(err, context.Canceled) {
				require.ErrorIs(w.t, err, by.want)
			}
		case <-time.After(crowdTTL / 8):
			require.Fail(w.t, "a waiter does not ask")
		}
	}
	w.t.Logf("served after %v", time.Since(start))
}

// expectCrowd returns when all waiters have asked after they had subscribed, and expect the number
// of those that receive a release.
func (w *wait) expectCrowd() {
	w.t.Helper()
	var shared []string
	require.Eventually(w.t, func() bool {
		n := int64(0)
		shared = nil
		for channel, subscribers := range w.rdb.PubSubNumSub(w.t.Context(), w.rdb.PubSubChannels(w.t.Context(), "*").Val()...).Val() {
			if n += subscribers; subscribers > 1 { // not that of a waiter in a queue
				shared = append(shared, channel)
			}
		}
		return n >= crowdWaits
	}, 10*time.Second, 5*time.Millisecond)
	time.Sleep(50 * time.Millisecond) // no event says that they have asked
	for _, channel := range shared {
		require.NoError(w.t, w.rdb.Publish(w.t.Context(), channel, strconv.Itoa(crowdWaits)).Err())
	}
}
