package guard_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// acquireElsewhere acquires the key for another process.
func (s *testStore) acquireElsewhere(t *testing.T, ttl time.Duration) driver.Claim {
	t.Helper()
	c := driver.Claim{Key: "k", ID: "elsewhere", Owner: "elsewhere", TTL: ttl, Label: "another"}
	grant, err := s.memory.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, grant.State)
	return c
}

// release releases the claim in the store, and leaves behind what after specifies.
func (s *testStore) release(t *testing.T, c driver.Claim, after driver.After) {
	t.Helper()
	held, err := s.memory.Release(context.Background(), c, after)
	require.NoError(t, err)
	require.True(t, held)
}

func TestQueue_ofAThousandCostsTheStoreAsMuchAsOne(t *testing.T) {
	for name, callers := range map[string]int{"one": 1, "a thousand": 1000} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			claim := store.acquireElsewhere(t, time.Hour)
			c := newCallers(t, g)
			start := time.Now()
			for range callers {
				c.start(t.Context(), 0, guard.WithWait(5*time.Second))
			}
			c.requireOrder()
			require.LessOrEqual(t, store.count(driver.OpAcquire), 5*8+10, "a poll every 125 to 250 ms, and the first few")
			for i := range callers {
				require.Equal(t, 5*time.Second, c.end(i).at.Sub(start))
				busy := as[*guard.BusyError](t, c.end(i).err)
				require.Equal(t, "another", busy.Label)
				require.InDelta(t, time.Hour-5*time.Second, busy.Left, float64(time.Millisecond))
				require.Equal(t, 5*time.Second, busy.Waited)
			}
			store.release(t, claim, driver.After{})
		})
	}
}

func TestQueue_aCallThatLeavesDoesNotDelayOthers(t *testing.T) {
	for name, leaver := range map[string]int{"the first waiter": 0, "a waiter in the middle": 1, "the last waiter": 2} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			claim := store.acquireElsewhere(t, time.Hour)
			c := newCallers(t, g)
			mine := errors.New("I have changed my mind")
			order := []int{}
			start := time.Now()
			for i := range 3 {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.start(ctx, time.Millisecond); i == leaver {
					time.AfterFunc(2*time.Second, func() { cancel(mine) })
				} else {
					order = append(order, i)
				}
			}
			time.Sleep(10 * time.Second)
			require.Equal(t, 2*time.Second, c.end(leaver).at.Sub(start))
			require.ErrorIs(t, c.end(leaver).err, mine)
			require.LessOrEqual(t, store.count(driver.OpAcquire), 10*8+10)
			store.release(t, claim, driver.After{})
			released := time.Now()
			c.requireOrder(order...)
			require.LessOrEqual(t, time.Since(released), 260*time.Millisecond)
		})
	}
}

func TestQueue_endsWithClose(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		c.start(t.Context(), time.Second)
		for range 1000 {
			c.start(t.Context(), 0)
		}
		closed := time.Now()
		require.NoError(t, g.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(closed))
		c.requireOrder(0)
		for i := 1; i <= 1000; i++ {
			require.ErrorIs(t, c.end(i).err, guard.ErrClosed)
			require.Equal(t, closed, c.end(i).at)
		}
		require.True(t, store.free("k"))
	})
}

func TestQueue_sharesStoreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(context.Context, int, driver.Claim) (driver.Answer, error)
		apart  time.Duration // the next call waits longer by this
		grace  time.Duration // for a call whose time is up, until the first request ends
	}{
		"unreachable": {failing(guardtest.Fail(driver.KindConnection)), time.Millisecond, 0},
		"frozen":      {noAnswer, 0, time.Second},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnAcquire = c.answer
			calls := newCallers(t, g)
			start := time.Now()
			wait := func(i int) time.Duration { return 2*time.Second + time.Duration(i)*c.apart }
			for i := range 100 {
				calls.start(t.Context(), 0, guard.WithWait(wait(i)))
			}
			calls.requireOrder()
			for i := range 100 {
				require.ErrorIs(t, calls.end(i).err, guard.ErrStore)
				require.NotErrorIs(t, calls.end(i).err, guard.ErrBusy)
				require.LessOrEqual(t, calls.end(i).at.Sub(start), wait(i)+c.grace)
			}
			require.LessOrEqual(t, store.count(driver.OpAcquire), 20)
		})
	}
}

// A waiter whose time is up stays only until the first call has been granted the key.
func TestQueue_endsExpiredWaitsOnceTheKeyIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = store.acquireAfter(1500 * time.Millisecond)
		c := newCallers(t, g)
		start := time.Now()
		c.start(t.Context(), time.Minute)
		c.start(t.Context(), 0, guard.WithWait(time.Second))
		c.requireOrder(0)
		require.ErrorIs(t, c.end(1).err, guard.ErrBusy)
		require.Equal(t, 1500*time.Millisecond, c.end(1).at.Sub(start))
	})
}

// foreignContext is a context type that package context does not know. Package context starts a
// goroutine for each context that is derived from it. That goroutine ends with the derived
// context.
type foreignContext struct {
	context.Context
	done chan struct{}
}

func (a foreignContext) Done() <-chan struct{} { return a.done }

func TestQueue_leavesNothingInTheContextsOfItsWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		claim := store.acquireElsewhere(t, time.Hour)
		c := newCallers(t, g)
		for range 10 {
			c.start(foreignContext{t.Context(), make(chan struct{})}, 0, guard.WithWait(time.Second))
		}
		c.requireOrder()
		store.release(t, claim, driver.After{})
		// The bubble fails if a goroutine is left.
	})
}

func TestQueue_sharesDone(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		const waiters = 100
		c.startFunc(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Second)
			lease, _ := guard.FromContext(ctx)
			return lease.SetRecord([]byte("42"))
		}, guard.WithOnce(time.Hour), guard.WithLabel("the finished run"))
		for i := range waiters {
			opts := []guard.Option{guard.WithOnce(time.Hour)}
			if i%2 == 0 {
				opts = nil
			}
			c.start(t.Context(), 0, opts...)
		}
		c.requireOrder(0)
		require.Equal(t, 2, store.count(driver.OpAcquire))
		for i := 1; i <= waiters; i++ {
			done := as[*guard.DoneError](t, c.end(i).err)
			require.Equal(t, "52", string(done.Record), "each call has its own copy")
			require.Equal(t, time.Hour, done.Left)
			require.Equal(t, "the finished run", done.Label)
		}
	})
}

func TestLong_aQueueOfTenThousandHasNoGoroutineForEach(t *testing.T) {
	leftout.IfShort(t)
	const waiters = 10_000
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		before := runtime.NumGoroutine()
		lease := hold(t, g, "k", guard.WithWait(time.Second))
		for range waiters {
			all.Go(func() {
				if err := g.Do(ctx, "k", nothing, guard.WithWait(guard.Forever)); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		require.Less(t, runtime.NumGoroutine()-before, waiters+100, "goroutines of other tests come and go")
		cancel()
		all.Wait()
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, 1, store.count(driver.OpAcquire))
	})
}

// A call that does not wait asks the store even if others are queued. If it gets the key, the
// queue learns of the new holder.
func TestQueue_isOvertakenByACallThatDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		claim := store.acquireElsewhere(t, time.Hour)
		c := newCallers(t, g)
		c.start(t.Context(), time.Millisecond)
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
		time.Sleep(5 * time.Second)
		store.release(t, claim, driver.After{})
		lease := hold(t, g, "k")
		asked := store.count(driver.OpAcquire)
		time.Sleep(20 * time.Second)
		require.Equal(t, asked, store.count(driver.OpAcquire))
		require.NoError(t, lease.Release(t.Context()))
		released := time.Now()
		c.requireOrder(0)
		require.Equal(t, released.Add(time.Millisecond), time.Now())
	})
}

func TestQueue_reportsWaitsToHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		claim := store.acquireElsewhere(t, 90*time.Second)
		c := newCallers(t, g)
		var rs [3]recorder
		for i := range rs {
			c.start(t.Context(), 0, guard.WithHook(rs[i].hook()), guard.WithWait(time.Duration(i+1)*10*time.Second))
		}
		c.requireOrder()
		for i := range rs {
			require.Equal(t, []string{"acquire start", "wait", "acquire end", "skip"}, rs[i].seen(), fmt.Sprint(i))
			e := last[guard.WaitEvent](t, &rs[i])
			require.Equal(t, "another", e.Label)
			require.Equal(t, driver.Busy, e.State)
			require.InDelta(t, 90*time.Second, e.Left, float64(time.Second))
			require.Equal(t, time.Duration(i+1)*10*time.Second, last[guard.SkipEvent](t, &rs[i]).Waited)
			require.ErrorIs(t, last[guard.SkipEvent](t, &rs[i]).Err, guard.ErrBusy)
		}
		store.release(t, claim, driver.After{})
	})
}
