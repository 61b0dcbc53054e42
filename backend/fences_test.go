package backend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// ahead is AHEAD in counter.lua: how far ahead of the clock a store's first fence is.
const ahead = 1 << 17

// clockOf returns the server's clock as a fence.
func clockOf(t testing.TB, rdb *redis.Client) uint64 {
	t.Helper()
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	return uint64(now.Unix())<<20 + uint64(now.Nanosecond()/1000)
}

// longAgo sets a key's counter to a fence of long ago, so that the clock alone decides.
func longAgo(t testing.TB, rdb *redis.Client, counter string) {
	t.Helper()
	require.NoError(t, rdb.Set(t.Context(), counter, 1<<50, 0).Err())
}

// eachStore runs a test on each backend with a server of its own. ask asks for a key in one of the
// ways in which a claim comes to the server.
func eachStore(t *testing.T, test func(t *testing.T, s storeOn)) {
	for name, open := range backends {
		server := redistest.Start(t)
		for _, way := range []string{"alone", "together", "in the queue"} {
			t.Run(name+" "+way, func(t *testing.T) {
				rdb := server.Client(t)
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
				s := storeOn{batcher: batcherOn(server.Client(t), open), rdb: rdb, counter: counterKeys[name]("key"), way: way}
				test(t, s)
			})
		}
	}
}

type storeOn struct {
	*batcher
	rdb     *redis.Client
	counter string // of "key"
	way     string
}

// ask asks for a key.
func (s storeOn) ask(t *testing.T, c driver.Claim) (driver.Answer, error) {
	t.Helper()
	switch s.way {
	case "in the queue":
		c.Queue = driver.Queued
	case "together":
		answers, _ := s.send(t, op{claim: c}, take(c.Key, "another")) // which gets no fence
		return answers[0].grant, answers[0].err
	}
	return s.locker.TryAcquire(t.Context(), c)
}

// granted asks for "key", which has to be free, and releases it.
func (s storeOn) granted(t *testing.T, reserve int) driver.Answer {
	t.Helper()
	c := claim("key", "id")
	c.Fences.Reserve = reserve
	g, err := s.ask(t, c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.State)
	require.LessOrEqual(t, g.Reserved, max(reserve, 0))
	if s.way == "in the queue" {
		c.Queue = driver.Queued
	}
	_, err = s.locker.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
	return g
}

// last returns the counter of "key".
func (s storeOn) last(t *testing.T) uint64 {
	t.Helper()
	last, err := s.rdb.Get(t.Context(), s.counter).Uint64()
	require.NoError(t, err)
	return last
}

func TestFences_ofAStoreWithoutACounterStartAheadOfItsClock(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		exact := 0
		for try := 0; try < 10 || exact == 0; try++ {
			require.Less(t, try, 1000, "the machine pauses all the time")
			before := clockOf(t, s.rdb)
			g := s.granted(t, 1000)
			require.GreaterOrEqual(t, g.Fence, before+ahead)
			require.LessOrEqual(t, g.Fence, clockOf(t, s.rdb)+ahead)
			require.Zero(t, g.Reserved, "a store that may have lost its counter reserves nothing")
			require.Equal(t, g.Fence, s.last(t))
			next := s.granted(t, 0).Fence
			require.Greater(t, next, g.Fence)
			if clockOf(t, s.rdb) <= g.Fence { // the machine has not paused for as long as AHEAD is
				require.Equal(t, g.Fence+1, next)
				exact++
			}
			require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
		}
	})
}

func TestFences_areNotReservedFarAheadOfTheClock(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		longAgo(t, s.rdb, s.counter)
		first := s.granted(t, 1000)
		require.Equal(t, 1000, first.Reserved, "as the clock is ahead of the counter")
		require.Equal(t, first.Fence+1000, s.last(t))
		longAgo(t, s.rdb, s.counter)
		require.Equal(t, ahead/2/16, s.granted(t, 1<<30).Reserved, "at most a sixteenth of the bound")
		require.Zero(t, s.granted(t, 0).Reserved)
		require.Zero(t, s.granted(t, -1).Reserved)

		last := uint64(0)
		bounded := func() driver.Answer {
			g := s.granted(t, 1<<30)
			require.Greater(t, g.Fence, last)
			last = g.Fence + uint64(g.Reserved)
			require.Equal(t, last, s.last(t))
			require.LessOrEqual(t, last, clockOf(t, s.rdb)+ahead/2)
			return g
		}
		for range 20 {
			bounded()
		}
		// Reservations get smaller when the counter runs ahead. If the machine pauses, the clock
		// catches up.
		for try := 0; ; try++ {
			require.Less(t, try, 1000)
			last = max(last, clockOf(t, s.rdb)+ahead/4)
			require.NoError(t, s.rdb.Set(t.Context(), s.counter, last, 0).Err())
			if bounded().Reserved < ahead/2/16 {
				break
			}
		}

		require.NoError(t, s.rdb.Set(t.Context(), s.counter, clockOf(t, s.rdb)+1<<30, 0).Err())
		g := s.granted(t, 1000)
		require.Zero(t, g.Reserved, "the counter is too far ahead of the clock")
		require.Equal(t, g.Fence, s.last(t))
	})
}

func TestFences_thatAQuorumBringsAreReservedAsTheyAre(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		far := clockOf(t, s.rdb) + 1<<30
		c := claim("key", "id")
		c.Fence, c.Fences.Reserve = far, 5000
		g, err := s.ask(t, c)
		require.NoError(t, err)
		require.Equal(t, driver.Answer{State: driver.Granted, Fence: far, Reserved: 5000}, g)
		require.Equal(t, far+5000, s.last(t))

		g, err = s.ask(t, c)
		require.NoError(t, err)
		require.Equal(t, driver.Answer{State: driver.Granted, Fence: far, Held: true}, g, "a repeated claim reserves nothing")

		c.Fence += 10_000
		held, err := s.locker.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		require.Equal(t, far+15_000, s.last(t))
	})
}

func TestFences_areNotReservedForAClaimThatHeldTheKey(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		longAgo(t, s.rdb, s.counter)
		first, err := s.ask(t, claim("key", "id"))
		require.NoError(t, err)
		for _, id := range []string{"id", "joins"} {
			c := claim("key", id)
			c.Owner, c.Fences.Reserve = "id", 1000
			g, err := s.ask(t, c)
			require.NoError(t, err)
			if g.State == driver.Busy {
				continue // it keeps no owners
			}
			require.Equal(t, driver.Answer{State: driver.Granted, Fence: first.Fence, Held: true}, g)
			require.Equal(t, first.Fence, s.last(t))
		}
	})
}

// A quorum may restore a lease, or raise its fence, on a server that lost its counter. That fence
// must not replace the lost counter.
func TestFences_fromAQuorumDoNotReplaceALostCounter(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		for _, lose := range []string{"before it is taken in again", "before it is raised"} {
			c := claim("key", "id")
			c.Fence = clockOf(t, s.rdb)
			_, err := s.ask(t, c)
			require.NoError(t, err)
			if lose == "before it is raised" {
				require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
				c.Fence++
				held, err := s.locker.Renew(t.Context(), c)
				require.NoError(t, err)
				require.True(t, held)
			}
			_, err = s.locker.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
			before := clockOf(t, s.rdb)
			require.GreaterOrEqual(t, s.granted(t, 0).Fence, before+ahead, lose)
			require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
		}
	})
}

// brokenCounters are none that a store has written. Some are as long as a counter and sort before
// it, and some are numbers to Lua.
var brokenCounters = []string{
	"nan", "inf", "-inf", "-nan", "infinity", "", " ", "0x10", "0x1ffffffffffff", "0x00000000000010", "1e3",
	"1e00000000000003", "-5", "-000000000000005", "+000000000000005", "-1e+100000000000", "000000000000005 ",
	" 000000000000005", "             nan", "            -inf", "1.5", "1.50000000000000", "five", "1\n",
	"9007199254740992", "9007199254740993", "9999999999999999", "18446744073709551615", "1" + strings.Repeat("0", 400),
}

func TestFences_aCounterThatIsBrokenIsRefused(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		for _, broken := range brokenCounters {
			require.NoError(t, s.rdb.Set(t.Context(), s.counter, broken, 0).Err())
			for _, terms := range []driver.Claim{{}, {Fences: driver.FenceRequest{Reserve: 10}}, {Fences: driver.FenceRequest{Hint: clockOf(t, s.rdb)}}, {Fence: 1 << 50}} {
				c := claim("key", "id")
				c.Fences, c.Fence = terms.Fences, terms.Fence
				g, err := s.ask(t, c)
				require.Equal(t, driver.Answer{}, g, "%q", broken)
				s.requireRefused(t, err, broken)
			}
			require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
			before := clockOf(t, s.rdb)
			require.GreaterOrEqual(t, s.granted(t, 0).Fence, before+ahead, "as the error says")
			require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		}
	})
}

func (s storeOn) requireRefused(t *testing.T, err error, broken string) {
	t.Helper()
	require.Equal(t, driver.KindProtocol, answer{err: err}.kind(t), "%q: %v", broken, err)
	require.ErrorContains(t, err, s.counter)
	require.Equal(t, broken, s.rdb.Get(t.Context(), s.counter).Val(), "it stays as it is")
}

func TestFences_areNotRaisedOnABrokenCounter(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		c := claim("key", "id")
		g, err := s.ask(t, c)
		require.NoError(t, err)
		for i, broken := range brokenCounters {
			require.NoError(t, s.rdb.Set(t.Context(), s.counter, broken, 0).Err())
			c.Fence = g.Fence
			held, err := s.locker.Renew(t.Context(), c)
			require.NoError(t, err, "which needs no counter")
			require.True(t, held)
			c.Fence = g.Fence + 10
			for range 2 { // the second time is no easier
				_, err = s.locker.Renew(t.Context(), c)
				s.requireRefused(t, err, broken)
			}
			again, err := s.ask(t, c)
			require.NoError(t, err)
			require.Equal(t, g.Fence, again.Fence, "the lease is as it was")
			if i%2 == 0 { // an owner who joins raises the counter, too
				c := claim("key", "id2")
				c.Owner = "id"
				if g, err := s.ask(t, c); g.State != driver.Busy {
					s.requireRefused(t, err, broken)
				}
			}
		}
	})
}

// A counter may be as large as fences are exact in Lua.
func TestFences_ofALargeCounterAreExact(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		const large = 1<<53 - 2*ahead
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, large, 0).Err())
		for i := range uint64(3) {
			require.Equal(t, large+1+i, s.granted(t, 10).Fence)
		}
	})
}

func TestFences_showOddBytesOfABrokenCounterAsQuestionMarks(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s storeOn) {
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, "OOM a\r\n\x00\xff"+strings.Repeat("x", 1000), 0).Err())
		_, err := s.ask(t, claim("key", "id"))
		require.Equal(t, driver.KindProtocol, answer{err: err}.kind(t), "%v", err)
		require.ErrorContains(t, err, fmt.Sprintf("%s holds %q", s.counter, "OOM?a????"+strings.Repeat("x", 31)))
	})
}

// Processes hand a key off as fast as they can while the server forgets everything now and then:
// an old lease goes on being handed off for some milliseconds under the fences that were reserved
// for it.
func TestLong_fencesAreGivenOnceAlthoughTheServerForgetsDuringHandOffs(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			rdb := server.Client(t)
			var mu sync.Mutex
			given := map[uint64]int{}
			count := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(given)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var all sync.WaitGroup
			for range 2 {
				g, err := guard.New(open(server.Client(t)), guard.WithTTL(time.Second))
				require.NoError(t, err)
				t.Cleanup(func() { _ = g.Close(context.WithoutCancel(ctx)) })
				for range 8 {
					all.Go(func() {
						for ctx.Err() == nil {
							_ = g.Do(ctx, "key", func(ctx context.Context) error {
								mu.Lock()
								defer mu.Unlock()
								given[guard.Fence(ctx)]++
								return nil
							}, guard.WithWait(guard.Forever))
						}
					})
				}
			}
			for range 5 {
				// the server forgets at random instants
				time.Sleep(time.Duration(rand.IntN(int(300 * time.Millisecond))))
				require.NoError(t, rdb.FlushAll(ctx).Err())
				before := count()
				require.Eventually(t, func() bool { return count() > before+100 }, settled, time.Millisecond, "many leases are handed off between two flushes")
			}
			stop()
			all.Wait()
			twice := 0
			for _, n := range given {
				if n > 1 {
					twice++
				}
			}
			require.Zero(t, twice, "fences that two holders had, of %d", len(given))
		})
	}
}
