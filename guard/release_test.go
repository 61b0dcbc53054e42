package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestRelease_worksAfterTheContextHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := g.Acquire(ctx, "k")
		require.NoError(t, err)
		cancel()
		require.ErrorIs(t, context.Cause(lease.Context()), context.Canceled)
		require.True(t, lease.Valid(), "the end of the caller's context does not end the lease")
		require.False(t, store.free("k"))
		require.NoError(t, lease.Release(ctx))
		require.True(t, store.free("k"))
	})
}

func TestRelease_twiceDoesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		lease := hold(t, g, "k")
		require.NoError(t, lease.Release(t.Context()))
		other := hold(t, g, "k")
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, lease.Complete(t.Context()))
		require.False(t, store.free("k"), "another call holds the key by now")
		require.NoError(t, other.Release(t.Context()))
		require.Equal(t, 2, store.count(driver.OpRelease))
	})
}

func TestRelease_endsTheValidityBeforeItIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		lease := hold(t, g, "k")
		store.OnRelease = func(ctx context.Context, _ int, c driver.Claim, after driver.After) (bool, error) {
			require.False(t, lease.Valid())
			require.ErrorIs(t, context.Cause(lease.Context()), guard.ErrReleased)
			return store.memory.Release(ctx, c, after)
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestRelease_withALostReplyReportsNoLoss(t *testing.T) {
	for name, opts := range map[string][]guard.Option{
		"plain":    nil,
		"once":     {guard.WithOnce(time.Hour)},
		"min hold": {guard.WithMinHold(time.Hour)},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
				held, err := store.memory.Release(ctx, c, after)
				if n == 1 {
					return false, errors.New("the reply was lost")
				}
				return held, err
			}
			require.NoError(t, g.Do(t.Context(), "k", nothing, opts...))
			require.Equal(t, 2, store.count(driver.OpRelease))
		})
	}
}

func TestRelease_withoutAnAnswerReturnsErrMarkerAndContinuesInTheBackground(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.failReleasesFor(3 * time.Second)
		err := g.Do(t.Context(), "k", nothing, guard.WithOnce(time.Hour))
		uncertain := as[*guard.MarkerError](t, err)
		require.Equal(t, "k", uncertain.Key)
		require.True(t, guard.Ran(err))
		require.NotErrorIs(t, err, guard.ErrStore, "a caller must not run the work again")
		require.Equal(t, driver.OpRelease, as[*guard.StoreError](t, uncertain.Err).Op)
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
		time.Sleep(5 * time.Second)
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrDone)
	})
}

func TestRelease_returnsSoonAfterTheContextHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		thaw := store.freezeReleases()
		ended, cancel := context.WithCancel(t.Context())
		start := time.Now()
		mine := errors.New("mine")
		err := g.Do(ended, "k", func(context.Context) error { cancel(); return mine })
		require.Same(t, mine, err)
		require.LessOrEqual(t, time.Since(start), 100*time.Millisecond)

		lease := hold(t, g, "other")
		deadline := within(t, time.Second)
		start = time.Now()
		require.ErrorIs(t, lease.Release(deadline), guard.ErrStore)
		require.LessOrEqual(t, time.Since(start), time.Second+100*time.Millisecond)
		thaw()
	})
}

func TestRelease_isBoundedWithoutADeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		thaw := store.freezeReleases()
		start := time.Now()
		require.NoError(t, g.Do(context.Background(), "k", nothing))
		require.Equal(t, 2*time.Second, time.Since(start))
		thaw()
	})
}

func TestComplete_leavesTheMarkerAndReleaseDoesNot(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		require.NoError(t, hold(t, g, "k", guard.WithOnce(time.Hour)).Release(t.Context()))
		require.NoError(t, hold(t, g, "k", guard.WithOnce(time.Hour)).Complete(t.Context()))
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrDone)
		require.NoError(t, hold(t, g, "without once").Complete(t.Context()))
		require.NoError(t, g.Do(t.Context(), "without once", nothing))
	})
}

func TestClose_refusesNewWorkAndWaitsForTheRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		finished := false
		go func() {
			err := g.Do(context.Background(), "k", func(ctx context.Context) error {
				time.Sleep(5 * ttl)
				finished = true
				return context.Cause(ctx)
			})
			assert.NoError(t, err)
		}()
		time.Sleep(time.Second)
		closed := make(chan error)
		go func() { closed <- g.Close(context.Background()) }()
		synctest.Wait()
		err := g.Do(t.Context(), "other", func(context.Context) error { t.Error("ran"); return nil })
		require.ErrorIs(t, err, guard.ErrClosed)
		require.Equal(t, "other", as[*guard.ClosedError](t, err).Key)
		require.NoError(t, <-closed)
		require.True(t, finished)
		require.True(t, store.free("k"))
	})
}

func TestClose_revokesLeasesWhenItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		result := make(chan error, 1)
		mine := errors.New("mine")
		go func() {
			result <- g.Do(context.Background(), "k", func(ctx context.Context) error {
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), guard.ErrClosed)
				time.Sleep(time.Hour)
				return errors.Join(mine, ctx.Err())
			}, guard.WithOnce(time.Hour))
		}()
		synctest.Wait()
		ctx := within(t, time.Minute)
		start := time.Now()
		err := g.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 lease was revoked")
		require.Equal(t, time.Minute, time.Since(start))
		require.True(t, store.free("k"))
		err = <-result
		require.ErrorIs(t, err, guard.ErrClosed)
		require.ErrorIs(t, err, mine)
		require.NotErrorIs(t, err, context.Canceled)
		require.NoError(t, g.Close(t.Context()), "a second Close succeeds")
	})
}
