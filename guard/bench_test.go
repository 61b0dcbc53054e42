package guard_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// BenchmarkDo measures the cost of the engine itself: an empty run under an uncontended lease in
// memory.
func BenchmarkDo(b *testing.B) {
	for name, opts := range map[string][]guard.Option{"wait=no": nil, "wait=yes": {guard.WithWait(time.Minute)}} {
		b.Run(name, func(b *testing.B) {
			g, err := guard.New(memory.New())
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Do(b.Context(), "key", nothing, opts...); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, g.Close(b.Context()))
		})
	}
}

// BenchmarkAcquire_many measures 512 concurrent callers, each with its own key.
func BenchmarkAcquire_many(b *testing.B) {
	g, err := guard.New(memory.New())
	require.NoError(b, err)
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(b.Context()) // callers usually can cancel theirs
	defer cancel()
	var next atomic.Int64
	var all sync.WaitGroup
	for n := range 512 {
		key := strconv.Itoa(n)
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				lease, err := g.Acquire(ctx, key)
				if err == nil {
					err = lease.Release(ctx)
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.NoError(b, g.Close(b.Context()))
}

// Ten thousand held leases must cost less than 1 KiB each, with all that belongs to them. Go
// allocates the hold in 384 bytes, or else in 448.
func TestHold_fitsItsSizeClass(t *testing.T) {
	require.LessOrEqual(t, guard.HoldSize, uintptr(384))
}

// A run allocates the acquisition, the claim's ID, the hold, two contexts for calls to the store,
// and the store's own entry. Options of the call add one allocation, and so does waiting.
func TestDo_allocatesLittle(t *testing.T) {
	spare := 0.0
	if raceDetector { // it moves some values from the stack to the heap
		spare = 1
	}
	g := newGuard(t, memory.New())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	most := map[string]float64{"no options": 6, "an option": 8}
	for name, opts := range map[string][]guard.Option{"no options": nil, "an option": {guard.WithWait(time.Minute)}} {
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			if g.Do(ctx, "key", nothing, opts...) != nil {
				t.Fail()
			}
		}), most[name]+spare, name)
	}
}

// BenchmarkDo_contended measures 64 callers that contend for one key.
func BenchmarkDo_contended(b *testing.B) {
	g, err := guard.New(memory.New())
	require.NoError(b, err)
	b.ReportAllocs()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := g.Do(b.Context(), "key", nothing, guard.WithWait(guard.Forever)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.NoError(b, g.Close(b.Context()))
}
