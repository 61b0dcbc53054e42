package single_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// paused is by how much a hint that is too old is at least behind the clock.
const paused = 65_000

// A claim that asks for a hint alone is granted by a shorter way in the script. Its fences must
// follow the same rules.
func TestTryAcquire_grantsAHintThatSuitsTheClockAndTheCounter(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := single.New(rdb)
	const second = 1 << 20 // of fences
	take := func(hint uint64) driver.Answer {
		c := driver.Claim{Key: "k", ID: "id" + strconv.FormatUint(hint, 10), TTL: time.Minute, Fences: driver.FenceRequest{Hint: hint}}
		g, err := l.TryAcquire(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State)
		require.False(t, g.Held)
		again, err := l.TryAcquire(t.Context(), c)
		require.NoError(t, err)
		require.True(t, again.Held)
		require.Equal(t, g.Fence, again.Fence, "a repeated claim must have the same fence")
		held, err := l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		held, err = l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
		return g
	}
	take(0)
	counters, err := rdb.Keys(t.Context(), "onerun:*:fence").Result()
	require.NoError(t, err)
	require.Len(t, counters, 1)
	now := func() uint64 {
		at, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		return uint64(at.Unix())<<20 + uint64(at.Nanosecond()/1000)
	}
	last := func(fence uint64) {
		require.NoError(t, rdb.Set(t.Context(), counters[0], fence, 0).Err())
	}

	var hint uint64
	var g driver.Answer
	for try := 0; try == 0 || g.Fence != hint; try++ {
		if try > 0 { // the machine may have paused until the hint was too old
			require.Greater(t, now(), hint+paused)
			require.Less(t, try, 1000)
		}
		hint = now()
		last(hint - 10)
		g = take(hint)
	}
	require.GreaterOrEqual(t, g.Clock, hint)
	require.Less(t, g.Clock, hint+10*second)
	counter, err := rdb.Get(t.Context(), counters[0]).Uint64()
	require.NoError(t, err)
	require.Equal(t, hint, counter)

	for _, refused := range []struct {
		why        string
		hint, last uint64
	}{
		{"it is the last fence", hint, hint},
		{"it is below the last fence", hint, hint + 1},
		{"it is ahead of the clock", now() + 100*second, hint},
		{"it is far behind the clock", now() - 100*second, hint - 200*second},
		{"it is far behind the clock, with fewer digits", 1, hint},
	} {
		last(refused.last)
		g := take(refused.hint)
		require.NotEqual(t, refused.hint, g.Fence, refused.why)
		require.Greater(t, g.Fence, refused.last, refused.why)
		require.Less(t, g.Fence, now()+second, refused.why)
		require.NotZero(t, g.Clock, refused.why)
	}
}

// One command raises the counters of all keys of a script. A counter that several keys share must
// end at the highest of their fences, in whatever order they come.
func TestStart_raisesASharedCounterToTheHighestHint(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := single.New(rdb)
	require.Empty(t, l.Warnings(t.Context())) // then it batches
	_, counter := redisstore.LeaseKeys("k")
	keys := []string{"k"}
	for i := 0; len(keys) < 3; i++ {
		key := strconv.Itoa(i)
		if _, other := redisstore.LeaseKeys(key); other == counter {
			keys = append(keys, key)
		}
	}
	now := func() uint64 {
		at, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		return uint64(at.Unix())<<20 + uint64(at.Nanosecond()/1000)
	}
	for try := 0; ; try++ {
		hint := now()
		require.NoError(t, rdb.Set(t.Context(), counter, hint-1000, 0).Err())
		var claims []driver.Claim
		var want []driver.Answer
		for i, below := range []uint64{20, 0, 10} {
			id := fmt.Sprint("id", try)
			claims = append(claims, driver.Claim{Key: keys[i], ID: id, TTL: time.Minute, Fences: driver.FenceRequest{Hint: hint - below}})
			want = append(want, driver.Answer{State: driver.Granted, Fence: hint - below})
		}
		got := make([]driver.Answer, len(claims))
		driver.Await(t.Context(), l, driver.OpAcquire, claims, driver.After{}, func(i int, g driver.Answer, err error) {
			assert.NoError(t, err)
			g.Clock = 0
			got[i] = g
		})
		if slices.EqualFunc(got, want, func(a, b driver.Answer) bool { return a.Fence == b.Fence }) {
			require.Equal(t, want, got)
			last, err := rdb.Get(t.Context(), counter).Uint64()
			require.NoError(t, err)
			require.Equal(t, hint, last, "another key may have a higher fence")
			return
		}
		// The machine may have paused until the hints were too old.
		require.Greater(t, now(), hint+paused)
		require.Less(t, try, 1000)
		for _, c := range claims {
			_, err := l.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
		}
	}
}
