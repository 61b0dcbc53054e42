package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestAcquire_countsValidityFromBeforeTheRequest(t *testing.T) {
	for _, delay := range []time.Duration{attemptLimit / 2, attemptLimit * 9 / 10} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				defer time.Sleep(delay)
				return store.memory.TryAcquire(ctx, c)
			}
			start := time.Now()
			lease := hold(t, g, "k", guard.WithoutRenewal())
			require.Equal(t, delay, time.Since(start))
			<-lease.Context().Done()
			require.Equal(t, ttl-margin, time.Since(start))
			require.Zero(t, store.count(driver.OpRenew))
			require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
		})
	}
}

// attemptLimit is how long a store may take to answer a claim with a TTL of ttl.
const attemptLimit = 5 * time.Second

func TestAcquire_refusesAGrantThatComesTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(_ context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			defer time.Sleep(ttl) // the store ignores its context
			return store.memory.TryAcquire(context.Background(), driver.Claim{Key: c.Key, ID: c.ID, TTL: time.Hour})
		}
		_, err := g.Acquire(t.Context(), "k")
		require.Equal(t, driver.KindTimeout, as[*guard.StoreError](t, err).Kind)
		synctest.Wait()
		require.True(t, store.free("k"), "the Guard releases the late grant")
	})
}

func TestAcquire_cleansUpAClaimWithAnUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			_, _ = store.memory.TryAcquire(ctx, c)
			return driver.Answer{}, errors.New("the reply was lost")
		}
		start := time.Now()
		_, err := g.Acquire(t.Context(), "k")
		require.ErrorIs(t, err, guard.ErrStore)
		require.Less(t, time.Since(start), time.Second)
		synctest.Wait()
		require.True(t, store.free("k"))
		require.Equal(t, 3, store.count(driver.OpAcquire), "the number of retries is limited")
	})
}

func TestAcquire_cleansUpARequestThatArrivesAfterTheCleanUp(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			go func() {
				time.Sleep(500 * time.Millisecond)
				_, _ = store.memory.TryAcquire(context.Background(), c)
			}()
			return driver.Answer{}, frozen(ctx)
		}
		ctx := within(t, 100*time.Millisecond)
		_, err := g.Acquire(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(500 * time.Millisecond)
		require.False(t, store.free("k"), "the late request has been granted by now")
		time.Sleep(time.Second)
		require.True(t, store.free("k"))
		time.Sleep(2 * ttl)
		released := store.count(driver.OpRelease)
		require.LessOrEqual(t, released, 10, "the intervals between clean-ups grow")
		time.Sleep(time.Minute)
		require.Equal(t, released, store.count(driver.OpRelease), "the clean-ups end")
	})
}

// A request may arrive long after its caller has given up: a proxy or a frozen server may have
// queued it.
func TestAcquire_cleansUpARequestThatArrivesMuchLater(t *testing.T) {
	for _, late := range []time.Duration{1500 * time.Millisecond, 3 * time.Second, ttl / 2, ttl} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				time.AfterFunc(late, func() { _, _ = store.memory.TryAcquire(context.Background(), c) })
				return driver.Answer{}, frozen(ctx)
			}
			ctx := within(t, 100*time.Millisecond)
			_, err := g.Acquire(ctx, "k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(late)
			require.False(t, store.free("k"), "the late request has been granted by now")
			time.Sleep(late/2 + time.Second)
			require.True(t, store.free("k"), "%v late", late)
		})
	}
}

// The first attempt got no answer, and it reaches the store only after the lease has ended. How
// the lease ended makes no difference.
func TestAcquire_cleansUpALateRepetitionHoweverTheLeaseEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, store *testStore, c driver.Claim, lease *guard.Lease, arrives func()){
		"lost at a renewal": func(t *testing.T, store *testStore, c driver.Claim, lease *guard.Lease, arrives func()) {
			_, err := store.memory.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
			<-lease.Context().Done()
			require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
			arrives()
		},
		"lost at the release": func(t *testing.T, store *testStore, c driver.Claim, lease *guard.Lease, arrives func()) {
			_, err := store.memory.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
			require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
			arrives()
		},
		"released": func(t *testing.T, _ *testStore, _ driver.Claim, lease *guard.Lease, arrives func()) {
			require.NoError(t, lease.Release(t.Context()))
			arrives()
		},
		"released after several attempts": func(t *testing.T, store *testStore, _ driver.Claim, lease *guard.Lease, arrives func()) {
			store.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
				if n < 5 {
					return false, errors.New("the connection was reset")
				}
				return store.memory.Release(ctx, c, after)
			}
			require.ErrorIs(t, lease.Release(t.Context()), guard.ErrStore, "the cleaner continues the release")
			for store.count(driver.OpRelease) < 5 {
				time.Sleep(time.Millisecond) // virtual
			}
			arrives()
		},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			var claim driver.Claim
			store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
				if n > 1 {
					return store.memory.TryAcquire(ctx, c)
				}
				claim = c
				return driver.Answer{}, errors.New("the connection was reset")
			}
			lease := hold(t, g, "k")
			end(t, store, claim, lease, func() {
				synctest.Wait()
				_, err := store.memory.TryAcquire(t.Context(), claim)
				require.NoError(t, err)
			})
			require.False(t, store.free("k"))
			time.Sleep(2 * time.Second)
			require.True(t, store.free("k"))
		})
	}
}

func TestAcquire_doesNotAskIfTheContextHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, g.Do(ctx, "k", nothing), context.Canceled)
		require.Zero(t, store.count(driver.OpAcquire))
	})
}

func TestAcquire_doesNotRetryAPermanentError(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = failing(&guard.StoreError{Backend: "test", Op: driver.OpAcquire, Key: "k", Kind: driver.KindAuth, Err: errors.New("wrong password")})
		start := time.Now()
		_, err := g.Acquire(t.Context(), "k", guard.WithWait(time.Hour))
		require.EqualError(t, err, `test: acquire "k": auth: wrong password`)
		require.Zero(t, time.Since(start))
		require.Equal(t, 1, store.count(driver.OpAcquire))
	})
}

func TestAcquire_boundsAStoreThatDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = noAnswer
		start := time.Now()
		_, err := g.Acquire(t.Context(), "k")
		require.Equal(t, attemptLimit, time.Since(start))
		require.ErrorIs(t, err, guard.ErrStore)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
		require.Equal(t, driver.KindTimeout, as[*guard.StoreError](t, err).Kind)
	})
}

func TestWait_asksAtTheEndOfTheHoldersLease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		dead := driver.Claim{Key: "k", ID: "dead", TTL: ttl}
		_, err := store.memory.TryAcquire(t.Context(), dead)
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(time.Minute)))
		require.InDelta(t, ttl, time.Since(start), float64(2*time.Millisecond))
	})
}

func TestWait_returnsDoneIfTheWorkFinishesMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		lease := hold(t, g, "k", guard.WithOnce(time.Hour))
		require.NoError(t, lease.SetRecord([]byte("42")))
		time.AfterFunc(time.Second, func() { require.NoError(t, lease.Complete(t.Context())) })
		err := g.Do(t.Context(), "k", func(context.Context) error { t.Error("ran twice"); return nil },
			guard.WithWait(time.Minute), guard.WithOnce(time.Hour))
		require.Equal(t, "42", string(as[*guard.DoneError](t, err).Record))
	})
}

func TestWait_continuesAfterStoreErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		start := time.Now()
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			if time.Since(start) < 20*time.Second {
				return driver.Answer{}, errors.New("unreachable")
			}
			return store.memory.TryAcquire(ctx, c)
		}
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(time.Minute)))
		require.Less(t, time.Since(start), 22*time.Second)
		require.Less(t, store.count(driver.OpAcquire), 60, "the call does not poll in a busy loop")
	})
}
