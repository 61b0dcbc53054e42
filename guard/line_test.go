package guard_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// callers are calls for one key that were begun one after the other.
type callers struct {
	t   *testing.T
	g   *guard.Guard
	all sync.WaitGroup

	mu     sync.Mutex
	order  []int    // in which they ran
	fences []uint64 // of their runs
	ended  map[int]end
}

// An end is when a call returned, from the begin of the bubble, and with what.
type end struct {
	at  time.Time
	err error
}

func newCallers(t *testing.T, g *guard.Guard) *callers {
	return &callers{t: t, g: g, ended: map[int]end{}}
}

// start starts a call whose function takes so long, and returns when it waits or has ended.
func (c *callers) start(ctx context.Context, takes time.Duration, opts ...guard.Option) (number int) {
	return c.startFunc(ctx, func(context.Context) error { time.Sleep(takes); return nil }, opts...)
}

func (c *callers) startFunc(ctx context.Context, f func(context.Context) error, opts ...guard.Option) (number int) {
	c.mu.Lock()
	number = len(c.ended)
	c.ended[number] = end{}
	c.mu.Unlock()
	c.all.Go(func() {
		err := errors.New("it panicked")
		defer func() {
			_ = recover()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended[number] = end{time.Now(), err}
		}()
		err = c.g.Do(ctx, "k", func(ctx context.Context) error {
			c.mu.Lock()
			c.order = append(c.order, number)
			c.fences = append(c.fences, guard.Fence(ctx))
			c.mu.Unlock()
			return f(ctx)
		}, append([]guard.Option{guard.WithWait(time.Minute)}, opts...)...)
		var done *guard.DoneError
		if errors.As(err, &done) && len(done.Record) > 0 {
			if string(done.Record) != "42" {
				c.t.Errorf("the record is %q", done.Record)
			}
			done.Record[0]++ // each has its own
		}
	})
	synctest.Wait()
	return number
}

// ran returns who has run so far.
func (c *callers) ran() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]int(nil), c.order...)
}

// fence returns the fence of the n-th run.
func (c *callers) fence(n int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fences[n]
}

// end returns how the call ended.
func (c *callers) end(number int) end {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[number]
}

// requireOrder waits for all, and checks which have run, in which order, and that their fences grow.
func (c *callers) requireOrder(order ...int) {
	c.t.Helper()
	c.all.Wait()
	require.Equal(c.t, append([]int(nil), order...), c.ran())
	for i := 1; i < len(c.fences); i++ {
		require.Greater(c.t, c.fences[i], c.fences[i-1])
	}
}

// elsewhere takes the key for another process.
func (s *testStore) elsewhere(t *testing.T, ttl time.Duration) guard.Claim {
	t.Helper()
	c := guard.Claim{Key: "k", ID: "elsewhere", Owner: "elsewhere", TTL: ttl, Label: "another"}
	grant, err := s.memory.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, guard.Granted, grant.State)
	return c
}

func (s *testStore) leave(t *testing.T, c guard.Claim, after guard.After) {
	t.Helper()
	held, err := s.memory.Release(context.Background(), c, after)
	require.NoError(t, err)
	require.True(t, held)
}

func TestLine_servesWhoCameFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		lease := hold(t, g, "k")
		c := newCallers(t, g)
		var order []int
		for range 20 {
			order = append(order, c.start(t.Context(), time.Millisecond))
		}
		require.NoError(t, lease.Release(t.Context()))
		c.requireOrder(order...)
	})
}

func TestLine_askedByAThousandCostsWhatOneCosts(t *testing.T) {
	for name, callers := range map[string]int{"one": 1, "a thousand": 1000} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
				claim := store.elsewhere(t, time.Hour)
				c := newCallers(t, g)
				start := time.Now()
				for range callers {
					c.start(t.Context(), 0, guard.WithWait(5*time.Second))
				}
				c.requireOrder()
				require.LessOrEqual(t, store.count(guard.OpAcquire), 5*8+10, "a poll each eighth to quarter of a second, and those before")
				for i := range callers {
					require.Equal(t, 5*time.Second, c.end(i).at.Sub(start))
					var busy *guard.BusyError
					require.ErrorAs(t, c.end(i).err, &busy)
					require.Equal(t, "another", busy.Label)
					require.InDelta(t, time.Hour-5*time.Second, busy.Left, float64(time.Millisecond))
					require.Equal(t, 5*time.Second, busy.Waited)
				}
				store.leave(t, claim, guard.After{})
			})
		})
	}
}

func TestLine_asksNothingWhileACallOfItsOwnHoldsTheKey(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		c.start(t.Context(), time.Hour)
		for range 100 {
			c.start(t.Context(), 0, guard.WithWait(50*time.Minute), guard.WithLabel("waiter"))
		}
		c.requireOrder(0)
		require.Equal(t, 1, store.count(guard.OpAcquire))
		var busy *guard.BusyError
		require.ErrorAs(t, c.end(50).err, &busy)
		require.Greater(t, busy.Left, ttl/2)
		require.LessOrEqual(t, busy.Left, ttl)
		require.Contains(t, busy.Label, "pid", "the holder's")
	})
}

func TestLine_whoLeavesCostsTheOthersNothing(t *testing.T) {
	for name, leaver := range map[string]int{"the first": 0, "one in the middle": 1, "the last": 2} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
				claim := store.elsewhere(t, time.Hour)
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
				require.LessOrEqual(t, store.count(guard.OpAcquire), 10*8+10)
				store.leave(t, claim, guard.After{})
				released := time.Now()
				c.requireOrder(order...)
				require.LessOrEqual(t, time.Since(released), 260*time.Millisecond)
			})
		})
	}
}

// The one that leaves has a request under way, of which nobody knows what became: the next asks at once.
func TestLine_theNextTakesOverFromOneWhoAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, n int, _ guard.Claim) (guard.Grant, error) {
			if n == 1 {
				return guard.Grant{}, frozen(ctx)
			}
			return guard.Grant{}, guardtest.ErrUnscripted
		}
		c := newCallers(t, g)
		ctx, cancel := context.WithCancel(t.Context())
		c.start(ctx, 0)
		c.start(t.Context(), 0)
		time.Sleep(time.Second)
		left := time.Now()
		cancel()
		c.requireOrder(1)
		require.Equal(t, left, c.end(1).at)
	})
}

func TestLine_endsWithClose(t *testing.T) {
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

func TestLine_letsEachWaitAsLongAsItWants(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.elsewhere(t, time.Hour)
		c := newCallers(t, g)
		start := time.Now()
		waits := []time.Duration{40 * time.Second, 10 * time.Second, 30 * time.Second, 20 * time.Second, 50 * time.Second}
		for _, w := range waits {
			c.start(t.Context(), 0, guard.WithWait(w))
		}
		c.requireOrder()
		for i, w := range waits {
			require.Equal(t, w, c.end(i).at.Sub(start))
			require.ErrorIs(t, c.end(i).err, guard.ErrBusy)
		}
	})
}

func TestLine_tellsThatTheStoreCannotBeAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(context.Context, int, guard.Claim) (guard.Grant, error) {
			return guard.Grant{}, guardtest.Fail(guard.KindConnection)
		}
		c := newCallers(t, g)
		start := time.Now()
		for i := range 1000 {
			c.start(t.Context(), 0, guard.WithWait(2*time.Second+time.Duration(i)*time.Millisecond))
		}
		c.requireOrder()
		for i := range 1000 {
			require.ErrorIs(t, c.end(i).err, guard.ErrStore)
			require.NotErrorIs(t, c.end(i).err, guard.ErrBusy)
			require.LessOrEqual(t, c.end(i).at.Sub(start), 2*time.Second+time.Duration(i)*time.Millisecond)
		}
		require.LessOrEqual(t, store.count(guard.OpAcquire), 20)
	})
}

// Nobody knows anything while the first request has no answer: those whose time is up stay until it times out, as they would if they had asked.
func TestLine_tellsThatTheStoreIsFrozenOnceItIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, _ int, _ guard.Claim) (guard.Grant, error) {
			return guard.Grant{}, frozen(ctx)
		}
		c := newCallers(t, g)
		start := time.Now()
		for range 100 {
			c.start(t.Context(), 0, guard.WithWait(time.Second))
		}
		c.requireOrder()
		for i := range 100 {
			require.ErrorIs(t, c.end(i).err, guard.ErrStore)
			require.Equal(t, attemptLimit, c.end(i).at.Sub(start))
		}
	})
}

// The same, where the answer is that the first has got the key.
func TestLine_letsThoseGoWhoseTimeIsUpOnceTheKeyIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, _ int, c guard.Claim) (guard.Grant, error) {
			time.Sleep(3 * time.Second)
			return store.memory.TryAcquire(ctx, c)
		}
		c := newCallers(t, g)
		start := time.Now()
		c.start(t.Context(), time.Minute)
		c.start(t.Context(), 0, guard.WithWait(time.Second))
		c.requireOrder(0)
		require.ErrorIs(t, c.end(1).err, guard.ErrBusy)
		require.Equal(t, 3*time.Second, c.end(1).at.Sub(start))
	})
}

// Each becomes the first when its time is up, and leaves with what was heard a moment ago.
func TestLine_doesNotAskForEachWhoseTimeIsUp(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		claim := store.elsewhere(t, time.Hour)
		store.OnAcquire = func(ctx context.Context, _ int, c guard.Claim) (guard.Grant, error) {
			time.Sleep(time.Millisecond)
			return store.memory.TryAcquire(ctx, c)
		}
		c := newCallers(t, g)
		for i := range 200 {
			c.start(t.Context(), 0, guard.WithWait(time.Second+time.Duration(i)*100*time.Microsecond))
		}
		c.requireOrder()
		require.LessOrEqual(t, store.count(guard.OpAcquire), 8+10)
		store.leave(t, claim, guard.After{})
	})
}

// A push that comes while a request is under way may be about what came after that.
func TestLine_asksAgainIfItWasRungWhileItAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &pushing{testStore: newTestStore(), wakes: make(chan func(), 100)}
		claim := store.elsewhere(t, time.Hour)
		var slow atomic.Bool
		store.OnAcquire = func(ctx context.Context, _ int, c guard.Claim) (guard.Grant, error) {
			if slow.CompareAndSwap(true, false) {
				defer time.Sleep(time.Second)
			}
			return store.memory.TryAcquire(ctx, c)
		}
		g, err := guard.New(store, guard.WithTTL(ttl))
		require.NoError(t, err)
		c := newCallers(t, g)
		c.start(t.Context(), 0)
		wake := <-store.wakes
		wake()
		time.Sleep(time.Second)
		slow.Store(true)
		wake()
		time.Sleep(500 * time.Millisecond)
		store.leave(t, claim, guard.After{})
		wake()
		released := time.Now()
		c.requireOrder(0)
		require.Less(t, time.Since(released), 4*time.Second, "the rest of the request, and three times as long for the others")
		require.NoError(t, g.Close(t.Context()))
	})
}

// The function that has lost its lease runs on, but the key may be free.
func TestLine_looksForItselfWhenACallOfItsOwnHasLostTheKey(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		c.start(t.Context(), time.Hour)
		c.start(t.Context(), 0)
		time.Sleep(time.Second)
		store.leave(t, store.granted()[0].Claim, guard.After{})
		deleted := time.Now()
		c.all.Wait()
		require.NoError(t, c.end(1).err)
		require.ErrorIs(t, c.end(0).err, guard.ErrLost)
		require.LessOrEqual(t, c.end(1).at.Sub(deleted), ttl/3)
	})
}

// alien is a context of which package context knows nothing: it starts a goroutine for each that is derived from it, which ends with that.
type alien struct {
	context.Context
	done chan struct{}
}

func (a alien) Done() <-chan struct{} { return a.done }

func TestLine_leavesNothingInTheContextsOfThoseWhoLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		claim := store.elsewhere(t, time.Hour)
		c := newCallers(t, g)
		for range 10 {
			c.start(alien{t.Context(), make(chan struct{})}, 0, guard.WithWait(time.Second))
		}
		c.requireOrder()
		store.leave(t, claim, guard.After{})
		// A goroutine that is left over fails the bubble.
	})
}

// One who comes later stays until the store has answered those before, and then leaves at once.
func TestLine_letsThoseGoWhoseTimeIsUpOnceAnythingIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.elsewhere(t, time.Hour)
		store.OnAcquire = func(ctx context.Context, _ int, c guard.Claim) (guard.Grant, error) {
			time.Sleep(3 * time.Second)
			return store.memory.TryAcquire(ctx, c)
		}
		c := newCallers(t, g)
		start := time.Now()
		c.start(t.Context(), 0)
		c.start(t.Context(), 0, guard.WithWait(time.Second))
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, c.end(1).err, guard.ErrBusy)
		require.Equal(t, 3*time.Second, c.end(1).at.Sub(start))
		c.requireOrder()
	})
}

func TestLine_tellsAllThatTheWorkIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		const waiters = 100
		c.startFunc(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Second)
			lease, _ := guard.FromContext(ctx)
			return lease.SetRecord([]byte("42"))
		}, guard.WithOnce(time.Hour), guard.WithLabel("the one that finished"))
		for i := range waiters {
			opts := []guard.Option{guard.WithOnce(time.Hour)}
			if i%2 == 0 {
				opts = nil
			}
			c.start(t.Context(), 0, opts...)
		}
		c.requireOrder(0)
		require.Equal(t, 2, store.count(guard.OpAcquire))
		for i := 1; i <= waiters; i++ {
			var done *guard.DoneError
			require.ErrorAs(t, c.end(i).err, &done)
			require.Equal(t, "52", string(done.Record), "each has its own")
			require.Equal(t, time.Hour, done.Left)
			require.Equal(t, "the one that finished", done.Label)
		}
	})
}

// One who came when the request was on its way asks for itself: the marker may have gone since.
func TestLine_doesNotTellThoseWhoCameLaterThatTheWorkIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		claim := store.elsewhere(t, time.Hour)
		store.leave(t, claim, guard.After{Keep: time.Millisecond, Done: true})
		store.OnAcquire = func(ctx context.Context, n int, c guard.Claim) (guard.Grant, error) {
			if n == 1 {
				defer time.Sleep(time.Second)
			}
			return store.memory.TryAcquire(ctx, c)
		}
		c := newCallers(t, g)
		c.start(t.Context(), 0)
		time.Sleep(100 * time.Millisecond)
		c.start(t.Context(), 0)
		c.requireOrder(1)
		require.ErrorIs(t, c.end(0).err, guard.ErrDone)
	})
}

func TestLine_ofTenThousandHasNoGoroutineForEach(t *testing.T) {
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
		require.Less(t, runtime.NumGoroutine()-before, waiters+100, "other tests' come and go")
		cancel()
		all.Wait()
		require.NoError(t, lease.Release(t.Context()))
		require.Equal(t, 1, store.count(guard.OpAcquire))
	})
}

func TestLine_listensOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store := &pushing{testStore: newTestStore(), wakes: make(chan func(), 100)}
		claim := store.elsewhere(t, 5*time.Minute)
		g, err := guard.New(store, guard.WithTTL(ttl))
		require.NoError(t, err)
		c := newCallers(t, g)
		for range 50 {
			c.start(t.Context(), time.Millisecond, guard.WithWait(guard.Forever))
		}
		wake := <-store.wakes
		wake()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, store.count(guard.OpAcquire), 4+12, "one in half a TTL")
		store.leave(t, claim, guard.After{})
		released := time.Now()
		wake()
		synctest.Wait()
		c.all.Wait()
		require.Less(t, time.Since(released), 60*time.Millisecond)
		require.Empty(t, store.wakes)
		require.Equal(t, 1, store.stopped)
		wake() // too late
		require.NoError(t, g.Close(t.Context()))
		require.Less(t, time.Since(start), 2*time.Minute)
	})
}

// owned is a store that grants a key to its owner again.
type owned struct {
	*testStore
	mu    sync.Mutex
	owner string
	holds int
}

func newOwned() *owned {
	s := &owned{testStore: newTestStore()}
	s.OnAcquire = func(_ context.Context, n int, c guard.Claim) (guard.Grant, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.holds > 0 && s.owner != c.Owner {
			return guard.Grant{Left: ttl}, nil
		}
		s.owner = c.Owner
		s.holds++
		return guard.Grant{State: guard.Granted, Fence: uint64(n) << 20, Held: s.holds > 1}, nil
	}
	s.OnRenew = func(context.Context, int, guard.Claim) (bool, error) { return true, nil }
	s.OnRelease = func(context.Context, int, guard.Claim, guard.After) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds--
		return true, nil
	}
	return s
}

// The holder waits for calls of his own, in other goroutines, which must not stand behind those who wait for him.
func TestLine_ofAnOwnerDoesNotStandBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOwned()
		g, err := guard.New(store, guard.WithTTL(ttl), guard.WithWait(guard.Forever))
		require.NoError(t, err)
		mine := guard.WithOwner("import")
		c := newCallers(t, g)
		lease := hold(t, g, "k", mine)
		c.start(t.Context(), time.Millisecond)
		c.start(t.Context(), time.Millisecond, guard.WithOwner("another"))
		start := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := g.Do(t.Context(), "k", func(context.Context) error { time.Sleep(time.Second); return nil }, mine); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, time.Second, time.Since(start), "all at once")
		require.NoError(t, lease.Release(t.Context()))
		c.all.Wait()
		require.ElementsMatch(t, []int{0, 1}, c.order)
		require.NoError(t, g.Close(t.Context()))
	})
}

// A call that does not wait asks, whoever stands in line, and those learn whether it holds the key.
func TestLine_isPassedByACallThatDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		claim := store.elsewhere(t, time.Hour)
		c := newCallers(t, g)
		c.start(t.Context(), time.Millisecond)
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
		time.Sleep(5 * time.Second)
		store.leave(t, claim, guard.After{})
		lease := hold(t, g, "k")
		asked := store.count(guard.OpAcquire)
		time.Sleep(20 * time.Second)
		require.Equal(t, asked, store.count(guard.OpAcquire))
		require.NoError(t, lease.Release(t.Context()))
		released := time.Now()
		c.requireOrder(0)
		require.Equal(t, released.Add(time.Millisecond), time.Now())
	})
}

func TestLine_hooksOfThoseWhoWait(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		claim := store.elsewhere(t, 90*time.Second)
		c := newCallers(t, g)
		var rs [3]recorder
		for i := range rs {
			c.start(t.Context(), 0, guard.WithHook(rs[i].hook()), guard.WithWait(time.Duration(i+1)*10*time.Second))
		}
		c.requireOrder()
		for i := range rs {
			require.Equal(t, []string{"acquire start", "wait", "acquire end", "skip"}, rs[i].seen(), fmt.Sprint(i))
			e := rs[i].last(t, "wait")
			require.Equal(t, "another", e.Label)
			require.Equal(t, guard.Busy, e.State)
			require.InDelta(t, 90*time.Second, e.Left, float64(time.Second))
			require.Equal(t, time.Duration(i+1)*10*time.Second, rs[i].last(t, "skip").Waited)
		}
		store.leave(t, claim, guard.After{})
	})
}
