package memory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func store(testing.TB) guard.Locker { return memory.New() }

func TestLocker(t *testing.T) {
	guardtest.Run(t, guardtest.Backend{New: store, Bubble: true, Ledger: true, Inspects: true, Queues: true, Shares: []int{2, 3, driver.Unlimited}})
}

func TestLocker_excludesInRealTime(t *testing.T) {
	guardtest.RunExclusion(t, guardtest.Backend{New: store, Shares: []int{2, 3, driver.Unlimited}})
}

func BenchmarkLocker(b *testing.B) {
	guardtest.Benchmark(b, guardtest.Backend{New: store})
}

func TestNew_startsWithHigherFencesThanBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last uint64
		for range 5 { // processes, one after the other
			l := memory.New()
			for i := range 100 {
				g, err := l.TryAcquire(t.Context(), claim(strconv.Itoa(i)))
				require.NoError(t, err)
				require.Greater(t, g.Fence, last)
				last = g.Fence
			}
			// no process starts in the microseconds of another's grants
			time.Sleep(time.Millisecond)
		}
	})
}

func TestLocker_reservesNoFencesFarAheadOfItsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead = 1 << 16 // 65 ms
		l := memory.New()
		take := func(key, reserve int) driver.Answer {
			t.Helper()
			c := claim(strconv.Itoa(key))
			c.Fences.Reserve = reserve
			g, err := l.TryAcquire(t.Context(), c)
			require.NoError(t, err)
			return g
		}
		first := take(0, 1000)
		require.Equal(t, 1000, first.Reserved, "its counter cannot have been lost")
		last := first.Fence + 1000
		for i := range 200 { // in one instant
			g := take(1+i, 1<<30)
			require.Greater(t, g.Fence, last)
			last = g.Fence + uint64(g.Reserved)
		}
		require.LessOrEqual(t, last, first.Fence+ahead+200, "and one for each grant")
		require.Zero(t, take(201, 1<<30).Reserved)
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 4096, take(202, 1<<30).Reserved, "a sixteenth, once the clock has caught up")
		require.Zero(t, take(203, -1).Reserved)
	})
}

func claim(key string) driver.Claim {
	return driver.Claim{Key: key, ID: "id of " + key, Owner: "owner", TTL: time.Second}
}

func TestLocker_forgetsWhatHasExpired(t *testing.T) {
	const (
		keys   = 10_000
		record = 4 << 10 // bytes
	)
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		before := heapInUse()
		for i := range keys {
			c := claim(strconv.Itoa(i))
			_, err := l.TryAcquire(t.Context(), c)
			require.NoError(t, err)
			_, err = l.Release(t.Context(), c, driver.After{Keep: time.Minute, Done: true, Record: make([]byte, record)})
			require.NoError(t, err)
		}
		require.Greater(t, heapInUse()-before, int64(keys*record), "the records are kept for a minute")

		time.Sleep(time.Minute) // virtual time: until the records may go
		_, err := l.TryAcquire(t.Context(), claim("one more"))
		require.NoError(t, err)
		require.Less(t, heapInUse()-before, int64(keys*record/10), "the records should have gone")
		runtime.KeepAlive(l)
	})
}

// heapInUse returns how many bytes are reachable, or nearly so.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func ExampleNew() {
	g, err := guard.New(memory.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	report := func(context.Context) error {
		fmt.Println("making the report")
		return nil
	}
	fmt.Println(g.Do(ctx, "report:2026-11-21", report, guard.WithOnce(24*time.Hour)))
	err = g.Do(ctx, "report:2026-11-21", report, guard.WithOnce(24*time.Hour))
	fmt.Println(err, errors.Is(err, guard.ErrDone))
	fmt.Println(g.Close(ctx))
	// Output:
	// making the report
	// <nil>
	// guard: "report:2026-11-21" is done true
	// <nil>
}

// A writer that waits finds that the key is done, and goes. It keeps no reader away after that.
func TestLocker_doneEndsThatAClaimIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		ask := func(c driver.Claim) driver.Answer {
			g, err := l.TryAcquire(t.Context(), c)
			require.NoError(t, err)
			return g
		}
		reader, waits, runs := claim("reader"), claim("waits"), claim("runs")
		reader.Key, waits.Key, runs.Key = "k", "k", "k"
		reader.MaxHolders, waits.Queue = driver.Unlimited, driver.Retried
		require.Equal(t, driver.Granted, ask(reader).State)
		require.Equal(t, driver.HeldForClaim, ask(waits).Reason)
		_, err := l.Release(t.Context(), reader, driver.After{})
		require.NoError(t, err)
		require.Equal(t, driver.Granted, ask(runs).State)
		_, err = l.Release(t.Context(), runs, driver.After{Keep: time.Millisecond, Done: true})
		require.NoError(t, err)
		require.Equal(t, driver.Done, ask(waits).State)
		time.Sleep(time.Millisecond)
		require.Equal(t, driver.Granted, ask(reader).State)
	})
}
