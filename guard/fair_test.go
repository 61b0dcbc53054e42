package guard_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// fairStore is a testStore that keeps a line.
type fairStore struct {
	*testStore
	deaf bool // nobody hears anything, not even that he listens
	late bool // who has stopped listening is called once more
}

func (s *fairStore) Queue(key, id string, called func(in time.Duration)) (stop func()) {
	if s.deaf {
		return func() {}
	}
	leave := s.memory.Queue(key, id, called)
	return func() {
		leave()
		if s.late {
			go called(0)
		}
	}
}

// fairCalls are those of several Guards over one store, as several processes would have them, and the order in which they have run.
type fairCalls struct {
	t      *testing.T
	store  *fairStore
	guards []*guard.Guard
	all    sync.WaitGroup

	mu     sync.Mutex
	ran    []int
	at     []time.Duration // when each began to run
	fences []uint64
	errs   map[int]error
	begun  time.Time
}

// inFairness runs f in virtual time with n Guards, and waits for their calls in the end.
func inFairness(t *testing.T, n int, f func(c *fairCalls), opts ...guard.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &fairCalls{t: t, store: &fairStore{testStore: newTestStore()}, errs: map[int]error{}, begun: time.Now()}
		defer func() { // also when f has failed
			for _, g := range c.guards {
				_ = g.Close(context.Background())
			}
		}()
		for range n {
			g, err := guard.New(c.store, append([]guard.Option{guard.WithTTL(ttl), guard.WithFair(), guard.WithWait(guard.Forever)}, opts...)...)
			require.NoError(t, err)
			c.guards = append(c.guards, g)
		}
		f(c)
		c.all.Wait()
		for _, g := range c.guards {
			require.NoError(t, g.Close(context.Background()))
		}
	})
}

// call has a call of the i-th Guard (and so on, anew) come, whose work takes so long, and returns when it runs or waits.
func (c *fairCalls) call(ctx context.Context, i int, takes time.Duration, opts ...guard.Option) {
	c.all.Go(func() {
		err := c.guards[i%len(c.guards)].Do(ctx, "k", func(ctx context.Context) error {
			c.mu.Lock()
			c.ran, c.at = append(c.ran, i), append(c.at, time.Since(c.begun))
			c.fences = append(c.fences, guard.Fence(ctx))
			c.mu.Unlock()
			time.Sleep(takes)
			return nil
		}, opts...)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs[i] = err
	})
	synctest.Wait()
}

// err returns what the i-th call came to.
func (c *fairCalls) err(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs[i]
}

// dead has a waiter come of whom nothing is heard any more.
func (c *fairCalls) dead(id string) {
	g, err := c.store.memory.TryAcquire(c.t.Context(), guard.Claim{Key: "k", ID: id, Owner: id, TTL: ttl, Line: guard.Queued})
	require.NoError(c.t, err)
	require.Equal(c.t, guard.Busy, g.State)
}

func TestWithFair_servesAllProcessesInTheOrderInWhichTheyCame(t *testing.T) {
	inFairness(t, 4, func(c *fairCalls) {
		var want []int
		for i := range 40 {
			i := i * 7 % 40 // so that each Guard's come in another order than their numbers
			want = append(want, i)
			c.call(c.t.Context(), i, 10*time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, want, c.ran)
		require.IsIncreasing(t, c.fences)
		for i, at := range c.at {
			require.Equal(t, time.Duration(i)*10*time.Millisecond, at, "the next begins at once")
		}
	})
}

func TestWithFair_asksTwiceWhenItComesAndOnceWhenItIsCalled(t *testing.T) {
	inFairness(t, 4, func(c *fairCalls) {
		for i := range 21 {
			c.call(c.t.Context(), i, 10*time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, 1+3*20, c.store.count(guard.OpAcquire))
		require.Equal(t, 21, c.store.count(guard.OpRelease))
	})
}

func TestWithFair_asksOnceInHalfATTLWhileItWaits(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		c.call(c.t.Context(), 0, 20*ttl)
		for i := range 10 {
			c.call(c.t.Context(), i+1, 0)
		}
		before := c.store.count(guard.OpAcquire)
		time.Sleep(10 * ttl)
		require.LessOrEqual(t, c.store.count(guard.OpAcquire)-before, 10*20, "ten calls in twenty times half a TTL")
		c.all.Wait()
		require.IsIncreasing(t, c.ran, "and their places were kept")
	})
}

func TestWithFair_takesAFreeKeyInTwoRoundTrips(t *testing.T) {
	inFairness(t, 1, func(c *fairCalls) {
		c.call(c.t.Context(), 0, 0)
		c.all.Wait()
		require.Len(t, c.store.Calls(), 2)
	})
}

func TestWithFair_handsNothingOverInsideTheProcess(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		var handed int
		hook := guard.WithHook(guard.Hook{AcquireEnd: func(_ context.Context, e guard.Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if e.HandedOn {
				handed++
			}
		}})
		for i := range 4 {
			c.call(c.t.Context(), i/2, time.Millisecond, hook)
		}
		c.all.Wait()
		require.Equal(t, []int{0, 0, 1, 1}, c.ran)
		require.Zero(t, handed)
	})
}

func TestWithFair_aCallThatDoesNotWaitIsBehindTheLine(t *testing.T) {
	inFairness(t, 1, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Second)
		c.dead("dead")
		time.Sleep(time.Second)
		synctest.Wait()
		c.call(c.t.Context(), 1, 0, guard.WithWait(0))
		var busy *guard.BusyError
		require.ErrorAs(t, c.err(1), &busy)
		require.Equal(t, guard.CallGrace, busy.Left)
		time.Sleep(guard.CallGrace)
		c.call(c.t.Context(), 2, 0, guard.WithWait(0))
		require.NoError(t, c.err(2))
	})
}

func TestWithFair_theDeadDelayTheLineByLessThanASecondEach(t *testing.T) {
	for dead := 1; dead <= 4; dead++ {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			inFairness(t, 1, func(c *fairCalls) {
				c.call(c.t.Context(), 0, time.Second)
				for i := range dead {
					c.dead(fmt.Sprint("dead ", i))
				}
				c.call(c.t.Context(), 1, 0)
				c.call(c.t.Context(), 2, 0)
				c.all.Wait()
				require.Equal(t, []int{0, 1, 2}, c.ran)
				require.Less(t, c.at[1], time.Second+time.Duration(dead)*time.Second)
			})
		})
	}
}

// The holder's process has died, and with it the first in line.
func TestWithFair_goesOnWhenTheHoldersLeaseHasEnded(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		grant, err := c.store.memory.TryAcquire(c.t.Context(), guard.Claim{Key: "k", ID: "holder", TTL: ttl, Line: guard.Queued})
		require.NoError(t, err)
		require.Equal(t, guard.Granted, grant.State)
		c.dead("dead")
		for i := range 5 {
			c.call(c.t.Context(), i, time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, c.ran)
		require.Less(t, c.at[0], ttl+time.Second)
	})
}

func TestWithFair_whoGivesUpLeavesTheLine(t *testing.T) {
	inFairness(t, 3, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Second)
		ctx, cancel := context.WithCancel(c.t.Context())
		c.call(ctx, 1, 0)
		c.call(c.t.Context(), 2, 0, guard.WithWait(500*time.Millisecond))
		c.call(c.t.Context(), 3, 0)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, c.err(1), context.Canceled)
		c.all.Wait()
		var busy *guard.BusyError
		require.ErrorAs(t, c.err(2), &busy)
		require.Equal(t, 500*time.Millisecond, busy.Waited)
		require.Equal(t, ttl-500*time.Millisecond, busy.Left)
		require.Equal(t, []int{0, 3}, c.ran)
		require.Equal(t, time.Second, c.at[1], "nobody waits for them")
		require.Equal(t, 4, c.store.count(guard.OpRelease), "two places and two leases")
	})
}

// The first in line is called at the very moment at which it gives up.
func TestWithFair_whoIsCalledAndGivesUpCallsTheNext(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Second)
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		c.call(ctx, 1, 0)
		c.call(c.t.Context(), 2, 0)
		c.all.Wait()
		require.Equal(t, 2, c.ran[len(c.ran)-1])
		require.Less(t, c.at[len(c.at)-1], 1050*time.Millisecond)
	})
}

func TestWithFair_allInLineLearnThatTheKeyIsDone(t *testing.T) {
	inFairness(t, 3, func(c *fairCalls) {
		for i := range 10 {
			c.call(c.t.Context(), i, time.Second)
		}
		c.all.Wait()
		require.Equal(t, []int{0}, c.ran)
		for i := 1; i < 10; i++ {
			require.ErrorIs(t, c.err(i), guard.ErrDone)
		}
		require.Equal(t, time.Second, time.Since(c.begun))
	}, guard.WithOnce(time.Hour))
}

func TestWithFair_waitsForTheMinimumHold(t *testing.T) {
	inFairness(t, 3, func(c *fairCalls) {
		for i := range 4 {
			c.call(c.t.Context(), i, 0, guard.WithMinHold(2*time.Second))
		}
		c.all.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, c.ran)
		for i, at := range c.at {
			require.InDelta(t, 2*time.Second*time.Duration(i), at, float64(10*time.Millisecond))
		}
	})
}

func TestWithFair_keepsItsPlaceWhenAnswersAreLost(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		lost := 0
		c.store.OnAcquire = func(ctx context.Context, n int, claim guard.Claim) (guard.Grant, error) {
			g, err := c.store.memory.TryAcquire(ctx, claim)
			if n%2 == 0 {
				lost++
				return guard.Grant{}, guardtest.Fail(guard.KindTimeout)
			}
			return g, err
		}
		for i := range 6 {
			c.call(c.t.Context(), i, 100*time.Millisecond)
			time.Sleep(5 * time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, c.ran)
		require.IsIncreasing(t, c.fences)
		require.Greater(t, lost, 5)
		time.Sleep(5 * time.Second) // what was left is cleaned up
		require.True(t, c.store.free("k"))
	})
}

func TestWithFair_looksForItselfWhileItDoesNotHear(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		c.store.deaf = true
		for i := range 5 {
			c.call(c.t.Context(), i, time.Second)
		}
		c.all.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, c.ran)
		require.Less(t, time.Since(c.begun), 5*time.Second+4*300*time.Millisecond)
	})
}

// That a call may come at the same time as what ends the listening is for the race detector.
func TestWithFair_mayBeCalledOnceMoreWhenItHasStoppedListening(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		c.store.late = true
		want := make([]int, 200)
		for i := range want {
			want[i] = i
			c.call(c.t.Context(), i, time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, want, c.ran)
	})
}

func TestWithFair_closeEndsTheWait(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Second)
		c.call(c.t.Context(), 1, 0)
		c.call(c.t.Context(), 2, 0)
		require.NoError(t, c.guards[1].Close(c.t.Context()))
		c.all.Wait()
		require.ErrorIs(t, c.err(1), guard.ErrClosed)
		require.Equal(t, []int{0, 2}, c.ran)
		require.Equal(t, time.Second, c.at[1], "it has left the line")
	})
}

func TestWithFair_tellsHooksThatItWaits(t *testing.T) {
	inFairness(t, 2, func(c *fairCalls) {
		r := &recorder{}
		c.call(c.t.Context(), 0, 3*ttl, guard.WithLabel("the holder"))
		c.call(c.t.Context(), 1, 0, guard.WithHook(r.hook()))
		require.Equal(t, []string{"acquire start", "wait"}, r.seen())
		require.Equal(t, "the holder", r.last(t, "wait").Label)
		c.all.Wait()
		require.Equal(t, []string{"acquire start", "wait", "acquire end", "run start", "run end", "release"}, r.seen())
		e := r.last(t, "acquire end")
		require.Equal(t, 3*ttl, e.Waited)
		require.Equal(t, "the holder", e.Previous)
		require.False(t, e.Takeover)
	})
}

func TestWithFair_isRefusedWhereTheStoreKeepsNoLine(t *testing.T) {
	var refused *guard.SettingError
	_, err := guard.New(newTestStore(), guard.WithFair())
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "WithFair", refused.Setting)
	require.ErrorContains(t, err, "testStore")

	g, err := guard.New(newTestStore())
	require.NoError(t, err)
	refused = nil
	require.ErrorAs(t, g.Do(t.Context(), "k", nothing, guard.WithFair()), &refused)
	require.Equal(t, "WithFair", refused.Setting)
	_, err = g.Wrap("k", nothing, guard.WithFair())
	require.ErrorAs(t, err, &refused)
	require.NoError(t, g.Close(t.Context()))
}

// unwrapper is a Locker around another.
type unwrapper struct{ guard.Locker }

func (u unwrapper) Unwrap() guard.Locker { return u.Locker }

func TestWithFair_findsTheLineOfAWrappedStore(t *testing.T) {
	g, err := guard.New(unwrapper{memory.New()}, guard.WithFair(), guard.WithWait(time.Second))
	require.NoError(t, err)
	require.NoError(t, g.Do(t.Context(), "k", nothing))
	require.NoError(t, g.Close(t.Context()))
}

func TestWithFair_anErrorOfTheStoreEndsACallThatHasNoTimeLeft(t *testing.T) {
	inFairness(t, 1, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Minute)
		c.store.OnAcquire = func(context.Context, int, guard.Claim) (guard.Grant, error) {
			return guard.Grant{}, guardtest.Fail(guard.KindConnection)
		}
		start := time.Now()
		err := c.guards[0].Do(c.t.Context(), "k", nothing, guard.WithWait(2*time.Second))
		require.ErrorIs(t, err, guard.ErrStore)
		require.Less(t, time.Since(start), 10*time.Second)
	})
}
