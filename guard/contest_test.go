package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// contested is the answer of a quorum whose nodes have granted the key to several claims.
var contested = driver.Answer{State: driver.Busy, Reason: driver.Undecided, Left: 30 * time.Millisecond}

func TestContest_isRetriedByACallThatDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		ids := map[string]bool{}
		store.OnAcquire = func(_ context.Context, n int, c driver.Claim) (driver.Answer, error) {
			ids[c.ID] = true
			if n <= 4 {
				return contested, nil
			}
			return driver.Answer{}, guardtest.ErrUnscripted
		}
		start := time.Now()
		require.NoError(t, g.Do(t.Context(), "k", nothing))
		require.Equal(t, 5, store.count(driver.OpAcquire))
		require.Len(t, ids, 5, "each request has a new ID, because the last claim may still be revoked")
		require.Equal(t, 4*contested.Left, time.Since(start), "as long as the store says")
	})
}

func TestContest_isBusyIfItDoesNotEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) { return contested, nil }
		start := time.Now()
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
		require.Equal(t, 11, store.count(driver.OpAcquire))
		require.Equal(t, 10*contested.Left, time.Since(start))
	})
}

func TestContest_aClaimThatWasNotSentIsNoCall(t *testing.T) {
	unsent := contested
	unsent.Reason = driver.Unsent
	for name, opts := range map[string][]guard.Option{"waits": {guard.WithWait(time.Minute)}, "does not wait": nil} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnAcquire = func(_ context.Context, n int, _ driver.Claim) (driver.Answer, error) {
				if n <= 2 {
					return unsent, nil
				}
				return driver.Answer{}, guardtest.ErrUnscripted
			}
			var calls events[guard.CallEvent]
			var ends events[guard.AcquireEvent]
			hook := guard.WithHook(guard.Hook{Call: calls.record, AcquireEnd: ends.record})
			require.NoError(t, g.Do(t.Context(), "k", nothing, append(opts, hook)...))
			require.Len(t, calls.all(), 2, "one acquire and one release")
			require.Equal(t, 1, ends.all()[0].Attempts)
		})
	}
}

func TestAcquire_cleansUpAClaimThatWasRefusedAfterALostAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		holder := hold(t, g, "k")
		var first string
		store.OnAcquire = func(_ context.Context, n int, c driver.Claim) (driver.Answer, error) {
			if n == 2 {
				first = c.ID
				return driver.Answer{}, guardtest.Fail(driver.KindConnection)
			}
			return driver.Answer{}, guardtest.ErrUnscripted
		}
		go func() {
			time.Sleep(time.Second)
			_ = holder.Release(context.Background())
		}()
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(time.Minute)))
		time.Sleep(5 * time.Second)
		released := false
		for _, call := range store.Calls() {
			released = released || call.Op == driver.OpRelease && call.Claim.ID == first
		}
		require.True(t, released)
	})
}

// notifyingStore is a testStore that implements driver.Subscriber. The test itself calls the
// functions that wake the waiters.
type notifyingStore struct {
	*testStore
	wakes   chan func()
	stopped int
}

func (p *notifyingStore) Subscribe(_, _ string, notify func(time.Duration)) (stop func()) {
	p.wakes <- func() { notify(0) }
	return func() { p.stopped++ }
}

// startWaiter starts a call that waits for a key that another process holds. It returns the call's
// store, a function that releases the key, and the channel that receives the result of
// the call.
func startWaiter(t *testing.T, opts ...guard.Option) (store *notifyingStore, release func(), outcome <-chan error) {
	t.Helper()
	store = &notifyingStore{testStore: newTestStore(), wakes: make(chan func(), 10)}
	g := newGuard(t, store, guard.WithTTL(ttl))
	holder := store.acquireElsewhere(t, 5*time.Minute)
	done := make(chan error)
	go func() { done <- g.Do(t.Context(), "k", nothing, append(opts, guard.WithWait(guard.Forever))...) }()
	return store, func() { store.release(t, holder, driver.After{}) }, done
}

func TestNotification_wakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store, release, done := startWaiter(t)
		wake := <-store.wakes
		wake() // the subscription has begun
		time.Sleep(3 * time.Second)
		asked := store.count(driver.OpAcquire)
		require.LessOrEqual(t, asked, 3, "it asks at the start, when the subscription begins, and perhaps once in between")
		release()
		wake()
		require.NoError(t, <-done)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, asked+1, store.count(driver.OpAcquire))
		require.Equal(t, 1, store.stopped)
	})
}

func TestNotification_isNotTrustedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store, release, done := startWaiter(t)
		(<-store.wakes)()
		time.Sleep(time.Second)
		release() // without a notification
		require.NoError(t, <-done)
		require.LessOrEqual(t, time.Since(start), ttl*6/10, "it asks after about half a TTL")
	})
}

// Another program may hold the key, which notifies nobody of its release. A waiter of a fair queue
// polls as well, see TestPlainKeys_waitersPollWhileAForeignProgramHoldsTheKey of package single.
func TestNotification_isNotExpectedFromAHolderWithoutAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, release, done := startWaiter(t)
		synctest.Wait() // the call has been refused once
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			grant, err := store.Inner.TryAcquire(ctx, c)
			grant.Holder = ""
			return grant, err
		}
		(<-store.wakes)() // the subscription has begun
		time.Sleep(time.Second)
		release()
		released := time.Now()
		require.NoError(t, <-done)
		require.LessOrEqual(t, time.Since(released), 250*time.Millisecond)
	})
}

// The key may become free after the call found it busy and before the subscription begins. The
// waiter gets no notification of that release.
func TestNotification_asksOnceTheSubscriptionHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store, release, done := startWaiter(t)
		wake := <-store.wakes
		release()
		wake() // the subscription has begun
		require.NoError(t, <-done)
		require.Zero(t, time.Since(start))
	})
}

// A waiter polls until its subscription has begun, as on a store without notifications.
func TestNotification_pollsUntilTheSubscriptionHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, release, done := startWaiter(t)
		time.Sleep(time.Second)
		release()
		released := time.Now()
		require.NoError(t, <-done)
		require.LessOrEqual(t, time.Since(released), 250*time.Millisecond)
	})
}

// A quorum that fails to answer revokes what its nodes have granted. The next request needs a new
// ID, because the revocation may still be under way.
func TestAcquire_changesTheIDOfAClaimThatTheBackendRevokes(t *testing.T) {
	for revoked, ids := range map[bool]int{true: 3, false: 1} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			seen := map[string]bool{}
			store.OnAcquire = func(_ context.Context, n int, c driver.Claim) (driver.Answer, error) {
				seen[c.ID] = true
				if n < 3 {
					return driver.Answer{}, &guard.StoreError{Op: driver.OpAcquire, Key: c.Key, Kind: driver.KindQuorum, Revoked: revoked, Err: guard.ErrStore}
				}
				return driver.Answer{}, guardtest.ErrUnscripted
			}
			require.NoError(t, g.Do(t.Context(), "k", nothing))
			require.Len(t, seen, ids)
			time.Sleep(5 * time.Second)
			require.True(t, store.free("k"))
		})
	}
}
