package guard_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A severalStore takes several claims in one call.
type severalStore struct {
	sharingStore
	on func(ctx context.Context)

	mu      sync.Mutex
	batches [][]string // the keys of each
}

func (s *severalStore) batch(ctx context.Context, claims []driver.Claim) {
	keys := make([]string, len(claims))
	for i, c := range claims {
		keys[i] = c.Key
	}
	slices.Sort(keys)
	s.mu.Lock()
	s.batches = append(s.batches, keys)
	s.mu.Unlock()
	if s.on != nil {
		s.on(ctx)
	}
}

func (s *severalStore) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op != driver.OpRenew {
		s.batch(ctx, claims)
	}
	startNow(ctx, s.memory, op, claims, after, done)
}

// together runs f in virtual time with a Guard over a severalStore.
func together(t *testing.T, f func(t *testing.T, store *severalStore, g *guard.Guard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &severalStore{sharingStore: sharingStore{newTestStore()}}
		g := openGuard(t, store, guard.WithTTL(ttl))
		f(t, store, g)
		ending, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		require.NoError(t, g.Close(ending))
		require.True(t, store.free("a"))
		require.True(t, store.free("c"))
	})
}

func TestAcquireAll_goesOutTogether(t *testing.T) {
	t.Run("free keys", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			require.NoError(t, g.DoAll(t.Context(), []string{"c", "b", "a"}, nothing))
			require.Equal(t, [][]string{{"a", "b", "c"}, {"a", "b", "c"}}, store.batches)
			require.Zero(t, store.count(driver.OpAcquire)+store.count(driver.OpRelease))
		})
	})
	t.Run("a busy key", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			b := hold(t, g, "b")
			time.AfterFunc(time.Second, func() { _ = b.Release(context.Background()) })
			require.NoError(t, g.DoAll(t.Context(), []string{"c", "b", "a"}, nothing, guard.WithWait(time.Minute)))
			require.Equal(t, [][]string{{"a", "b", "c"}, {"c"}, {"c"}, {"a", "b", "c"}}, store.batches)
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			ctx, cancel := context.WithCancel(t.Context())
			store.on = func(ctx context.Context) { <-ctx.Done() }
			time.AfterFunc(time.Second, cancel)
			_, err := g.AcquireAll(ctx, []string{"a", "b", "c"})
			require.ErrorIs(t, err, context.Canceled)
		})
	})
	for _, during := range []string{"acquire", "release"} {
		t.Run("the backend ends the goroutine during the "+during, func(t *testing.T) {
			together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
				ends := func(context.Context) { runtime.Goexit() }
				over := make(chan struct{})
				go func() {
					defer close(over)
					if during == "acquire" {
						store.on = ends
					}
					l, err := g.AcquireAll(t.Context(), []string{"a", "b", "c"})
					require.NoError(t, err)
					store.on = ends
					_ = l.Release(t.Context())
				}()
				<-over
				synctest.Wait() // for the cleaner
				for _, key := range []string{"a", "b", "c"} {
					require.True(t, store.free(key))
				}
			})
		})
	}
	t.Run("the backend panics", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			store.on = func(context.Context) { panic("a bug") }
			l, err := g.AcquireAll(t.Context(), []string{"a", "b", "c"})
			require.NoError(t, err, "each key is asked for again, by itself")
			require.NoError(t, l.Release(t.Context()))
			require.Equal(t, 3, store.count(driver.OpAcquire))
		})
	})
}

// Each of two calls is the first in the queue for one of the keys, and waits for the other key.
func TestDoAll_sharedCallsDoNotWaitForEachOther(t *testing.T) {
	together(t, func(t *testing.T, _ *severalStore, g *guard.Guard) {
		begin := time.Now()
		var all sync.WaitGroup
		for _, late := range []string{"a", "b"} {
			hook := guard.Hook{AcquireStart: func(ctx context.Context, e guard.Event) context.Context {
				if e.Key == late {
					time.Sleep(time.Millisecond)
				}
				return ctx
			}}
			all.Go(func() {
				err := g.DoAll(t.Context(), []string{"a", "b"}, nothing, guard.WithShared(), guard.WithHook(hook))
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.Less(t, time.Since(begin), 10*time.Millisecond)
	})
}

// A hook that blocks delays the keys of its own event only.
func TestAcquireAll_hooksOfAKeyDoNotDelayTheOthers(t *testing.T) {
	const blocked = time.Second
	t.Run("acquire", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			lease := hold(t, g, "a", guard.WithShared()) // the call joins it without a request
			hook := guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
				if e.Key == "a" {
					time.Sleep(blocked)
					require.False(t, store.free("b"))
				}
			}}
			l, err := g.AcquireAll(t.Context(), []string{"a", "b"}, guard.WithShared(), guard.WithHook(hook))
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, lease.Release(t.Context()))
		})
	})
	t.Run("release", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			hook := guard.Hook{Release: func(_ context.Context, e guard.ReleaseEvent) {
				if e.Key == "a" {
					time.Sleep(blocked)
					require.True(t, store.free("b"))
				}
			}}
			l, err := g.AcquireAll(t.Context(), []string{"a", "b"}, guard.WithHook(hook))
			require.NoError(t, err)
			store.forget(t, "a")
			<-l.Context().Done() // "a" is lost, so that its release sends nothing
			require.ErrorIs(t, l.Release(t.Context()), guard.ErrLost)
		})
	})
}
