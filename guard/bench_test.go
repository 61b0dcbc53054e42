package guard_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// BenchmarkDo is a run of nothing under a lease in memory: what the engine costs, for a key that nobody else wants.
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

// BenchmarkDo_contended is 64 callers who want one key.
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
