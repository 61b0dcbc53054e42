package guard_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A watchedStore is a store in memory that notifies of each release, and when a subscription
// begins.
type watchedStore struct {
	*memory.Locker
	mu   sync.Mutex
	subs map[string]map[*func()]bool
}

func (s *watchedStore) Describe() driver.Description { return driver.Description{} }

func (s *watchedStore) Subscribe(key, _ string, notify func(time.Duration)) (stop func()) {
	wake := func() { notify(0) }
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs[key] == nil {
		s.subs[key] = map[*func()]bool{}
	}
	s.subs[key][&wake] = true
	wake()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs[key], &wake)
	}
}

func (s *watchedStore) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	held, err := s.Locker.Release(ctx, c, after)
	s.mu.Lock()
	defer s.mu.Unlock()
	for wake := range s.subs[c.Key] {
		(*wake)()
	}
	return held, err
}

// subscribed returns how many subscriptions there are.
func (s *watchedStore) subscribed() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, some := range s.subs {
		n += len(some)
	}
	return n
}

func TestWatch_callsWhenTheKeyMayBeFree(t *testing.T) {
	for name, opts := range map[string][]guard.Option{"no namespace": nil, "namespace": {guard.WithNamespace("ns")}} {
		inTimeOf(t, name, func(t *testing.T) {
			store := &watchedStore{Locker: memory.New(), subs: map[string]map[*func()]bool{}}
			watching := openGuard(t, store, opts...)
			holding := newGuard(t, store, opts...)
			calls, running := 0, 0
			var last context.Context
			stop := watching.Adapter().Watch("k", func(ctx context.Context) {
				calls++
				running++
				require.Equal(t, 1, running, "never twice at the same time")
				time.Sleep(time.Second) // a call takes a while
				running--
				last = ctx
			})
			settle := func() {
				time.Sleep(3 * time.Second) // past the calls under way
				synctest.Wait()
			}
			release := func(keys ...string) {
				for _, key := range keys {
					lease, err := holding.Acquire(t.Context(), key)
					require.NoError(t, err)
					require.NoError(t, lease.Release(t.Context()))
				}
			}
			settle()
			require.Equal(t, 1, calls, "at the begin")
			release("k", "other")
			settle()
			require.Equal(t, 2, calls)
			release("k")
			synctest.Wait() // the call has begun
			release("k", "k")
			settle()
			require.Equal(t, 4, calls, "once, and once more for what came meanwhile")
			require.NoError(t, last.Err())
			stop()
			require.Error(t, last.Err())
			stop()
			require.Zero(t, store.subscribed())
			release("k")
			settle()
			require.Equal(t, 4, calls)

			watching.Adapter().Watch("k", func(ctx context.Context) { <-ctx.Done() })
			synctest.Wait()
			require.NoError(t, watching.Close(t.Context()), "which ends the watch, and waits for the call")
			require.Zero(t, store.subscribed())
			watching.Adapter().Watch("k", func(context.Context) { calls++ })()
			release("k")
			settle()
			require.Equal(t, 4, calls)
		})
	}
}

// A call that ends its goroutine, as require.FailNow does, used to end the watch without a word.
func TestWatch_goesOnAfterACallThatDoesNotReturn(t *testing.T) {
	for name, end := range map[string]func(){"Goexit": runtime.Goexit, "panic": func() { panic("in f") }} {
		inTimeOf(t, name, func(t *testing.T) {
			store := &watchedStore{Locker: memory.New(), subs: map[string]map[*func()]bool{}}
			g := newGuard(t, store)
			calls := 0
			g.Adapter().Watch("k", func(context.Context) {
				calls++
				end()
			})
			synctest.Wait()
			require.Equal(t, 1, calls, "at the begin")
			for n := range 3 {
				lease := hold(t, g, "k")
				require.NoError(t, lease.Release(t.Context()))
				synctest.Wait()
				require.Equal(t, n+2, calls)
			}
		})
	}
}
