package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// contested is the answer of a quorum whose nodes were shared out among several claims.
var contested = guard.Grant{State: guard.Busy, Left: ttl, Contested: true}

func TestContest_isTriedAgainByACallThatDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		ids := map[string]bool{}
		store.OnAcquire = func(_ context.Context, n int, c guard.Claim) (guard.Grant, error) {
			ids[c.ID] = true
			if n <= 4 {
				return contested, nil
			}
			return guard.Grant{}, guardtest.ErrUnscripted
		}
		start := time.Now()
		require.NoError(t, g.Do(t.Context(), "k", nothing))
		require.Equal(t, 5, store.count(guard.OpAcquire))
		require.Len(t, ids, 5, "what is still to be undone of one claim must not meet the next")
		require.Less(t, time.Since(start), 300*time.Millisecond)
	})
}

func TestContest_isBusyIfItDoesNotEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(context.Context, int, guard.Claim) (guard.Grant, error) { return contested, nil }
		start := time.Now()
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
		require.Equal(t, 11, store.count(guard.OpAcquire))
		require.Less(t, time.Since(start), time.Second)
	})
}

func TestAcquire_cleansUpAClaimThatWasRefusedAfterALostAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		holder := hold(t, g, "k")
		var first string
		store.OnAcquire = func(_ context.Context, n int, c guard.Claim) (guard.Grant, error) {
			if n == 2 {
				first = c.ID
				return guard.Grant{}, guardtest.Fail(guard.KindConnection)
			}
			return guard.Grant{}, guardtest.ErrUnscripted
		}
		go func() {
			time.Sleep(time.Second)
			_ = holder.Release(context.Background())
		}()
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(time.Minute)))
		time.Sleep(5 * time.Second)
		released := false
		for _, call := range store.Calls() {
			released = released || call.Op == guard.OpRelease && call.Claim.ID == first
		}
		require.True(t, released)
	})
}

// pushing is a store that tells when a key may be free, as long as it is not mute.
type pushing struct {
	*testStore
	wakes   chan func()
	stopped int
}

func (p *pushing) Notify(_ string, wake func()) (stop func()) {
	p.wakes <- wake
	return func() { p.stopped++ }
}

// waitBehindAHolder returns a Guard, its store, what releases the key that another process holds, and where the outcome of one who waits for
// it will be.
func waitBehindAHolder(t *testing.T) (g *guard.Guard, store *pushing, release func(), outcome <-chan error) {
	t.Helper()
	store = &pushing{testStore: newTestStore(), wakes: make(chan func(), 10)}
	g, err := guard.New(store, guard.WithTTL(ttl))
	require.NoError(t, err)
	holder := store.elsewhere(t, time.Hour)
	done := make(chan error)
	go func() { done <- g.Do(t.Context(), "k", nothing, guard.WithWait(time.Hour)) }()
	return g, store, func() { store.leave(t, holder, guard.After{}) }, done
}

func TestPush_wakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g, store, release, done := waitBehindAHolder(t)
		wake := <-store.wakes
		wake() // it listens now
		time.Sleep(3 * time.Second)
		asked := store.count(guard.OpAcquire)
		require.LessOrEqual(t, asked, 3, "it does not ask again and again: once, once it listens, and perhaps one poll before that")
		release()
		wake()
		require.NoError(t, <-done)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, asked+1, store.count(guard.OpAcquire))
		require.Equal(t, 1, store.stopped)
		require.NoError(t, g.Close(t.Context()))
	})
}

func TestPush_isNotReliedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g, store, release, done := waitBehindAHolder(t)
		(<-store.wakes)()
		time.Sleep(time.Second)
		release() // of which nobody tells
		require.NoError(t, <-done)
		require.LessOrEqual(t, time.Since(start), ttl*6/10, "half a TTL, and a little")
		require.NoError(t, g.Close(t.Context()))
	})
}

// The key may have come free after it was found busy and before the store began to tell: nobody will say so.
func TestPush_asksAtOnceWhenItListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g, store, release, done := waitBehindAHolder(t)
		wake := <-store.wakes
		release()
		wake() // it listens now
		require.NoError(t, <-done)
		require.Zero(t, time.Since(start))
		require.NoError(t, g.Close(t.Context()))
	})
}

// A waiter whose store never says that it listens looks for itself, as on a store that cannot tell.
func TestPush_thatNeverBeginsLeavesPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, release, done := waitBehindAHolder(t)
		time.Sleep(time.Second)
		release()
		released := time.Now()
		require.NoError(t, <-done)
		require.LessOrEqual(t, time.Since(released), 250*time.Millisecond)
		require.NoError(t, g.Close(t.Context()))
	})
}

// A quorum that failed to answer takes back what its nodes have granted. One that it still takes back from a node must
// not be the claim that is granted next.
func TestAcquire_asksAgainUnderAnotherIDWhereTheStoreTakesTheClaimBack(t *testing.T) {
	for over, ids := range map[bool]int{true: 3, false: 1} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			seen := map[string]bool{}
			store.OnAcquire = func(_ context.Context, n int, c guard.Claim) (guard.Grant, error) {
				seen[c.ID] = true
				if n < 3 {
					return guard.Grant{}, &guard.StoreError{Op: guard.OpAcquire, Key: c.Key, Kind: guard.KindQuorum, Over: over, Err: guard.ErrStore}
				}
				return guard.Grant{}, guardtest.ErrUnscripted
			}
			require.NoError(t, g.Do(t.Context(), "k", nothing))
			require.Len(t, seen, ids)
			time.Sleep(5 * time.Second)
			require.True(t, store.free("k"))
		})
	}
}
