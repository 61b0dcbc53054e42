package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func TestDoAll_hasASeatOfEachKey(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
		other := hold(t, there, "b")
		require.NoError(t, here.DoAll(t.Context(), []string{"b", "a"}, func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			seats := map[string]int{}
			for i, c := range lease.Claims() {
				seats[c.Key] = lease.Seats()[i]
			}
			require.Equal(t, map[string]int{"a": 1, "b": 2}, seats)
			return nil
		}))
		require.NoError(t, other.Release(t.Context()))
	}, guard.WithLimit(3))
}

func TestLimit_holdsForAllProcesses(t *testing.T) {
	for _, n := range []int{2, 5, guard.MaxSeats + 4} {
		for _, fair := range []bool{false, true} {
			inTimeOf(t, fmt.Sprint(n, fair), func(t *testing.T) {
				store := memory.New()
				var now, most, runs atomic.Int64
				var seats, fences sync.Map
				var all sync.WaitGroup
				for range 4 {
					g := newGuard(t, store, guard.WithTTL(ttl), guard.WithWait(guard.Forever), guard.WithLimit(n))
					for range 20 {
						all.Go(func() {
							opts := []guard.Option{}
							if fair {
								opts = append(opts, guard.WithFair())
							}
							require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
								most.Store(max(most.Load(), now.Add(1)))
								defer now.Add(-1)
								runs.Add(1)
								lease, _ := guard.FromContext(ctx)
								if n > guard.MaxSeats {
									require.Zero(t, lease.Seat())
								} else {
									_, taken := seats.LoadOrStore(lease.Seat(), true)
									require.False(t, taken, "seat %d is taken", lease.Seat())
									defer seats.Delete(lease.Seat())
									if last, ok := fences.Swap(lease.Seat(), lease.Fence()); ok {
										require.Greater(t, lease.Fence(), last.(uint64), "the fences of seat %d", lease.Seat())
									}
									require.True(t, lease.Seat() >= 1 && lease.Seat() <= n)
								}
								time.Sleep(100 * time.Millisecond)
								return nil
							}, opts...))
						})
					}
				}
				all.Wait()
				require.EqualValues(t, n, most.Load())
				require.EqualValues(t, 80, runs.Load())
			})
		}
	}
}

// Leases are handed off to those that wait in the process, each under a fence of its own, for a
// bounded time.
func TestLimit_handsOff(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
		const n, calls = 3, 200
		var fences sync.Map
		var now atomic.Int64
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				require.NoError(t, here.Do(t.Context(), "k", func(ctx context.Context) error {
					require.LessOrEqual(t, now.Add(1), int64(n))
					defer now.Add(-1)
					_, known := fences.LoadOrStore(guard.Fence(ctx), true)
					require.False(t, known)
					time.Sleep(time.Millisecond)
					return nil
				}, guard.WithLimit(n), guard.WithWait(guard.Forever)))
			})
		}
		time.Sleep(10 * time.Millisecond)
		begin := time.Now()
		require.NoError(t, there.Do(t.Context(), "k", nothing, guard.WithLimit(n), guard.WithWait(guard.Forever)))
		require.Less(t, time.Since(begin), 300*time.Millisecond, "another process has its turn")
		all.Wait()
		require.Less(t, store.count(driver.OpRelease), calls/4)
		require.True(t, store.free("k"))
	})
}

func TestUpgrade_isRefusedAtOnce(t *testing.T) {
	any, three, two := guard.WithShared(), guard.WithLimit(3), guard.WithLimit(2)
	for name, c := range map[string]struct {
		outer, inner []guard.Option
		refused      bool
	}{
		"alone in shared":         {[]guard.Option{any}, nil, true},
		"alone in a limit":        {[]guard.Option{two}, nil, true},
		"a limit in shared":       {[]guard.Option{any}, []guard.Option{two}, true},
		"a smaller limit":         {[]guard.Option{three}, []guard.Option{two}, true},
		"the same limit":          {[]guard.Option{two}, []guard.Option{two}, false},
		"a larger limit":          {[]guard.Option{two}, []guard.Option{three}, false},
		"shared in shared":        {[]guard.Option{any}, []guard.Option{any}, false},
		"shared in a limit":       {[]guard.Option{two}, []guard.Option{any}, false},
		"shared in alone":         {nil, []guard.Option{any}, false},
		"alone in alone":          {nil, nil, false},
		"a limit of one in alone": {nil, []guard.Option{guard.WithLimit(1)}, false},
	} {
		sharingOf(t, name, func(t *testing.T, _ sharingStore, here, _ *guard.Guard) {
			wait := guard.WithWait(guard.Forever)
			require.NoError(t, here.Do(t.Context(), "k", func(ctx context.Context) error {
				ran := false
				err := here.Do(ctx, "k", func(context.Context) error { ran = true; return nil }, append(c.inner, wait)...)
				lease, alike := here.Acquire(ctx, "k", append(c.inner, wait)...)
				require.Equal(t, !c.refused, ran)
				if !c.refused {
					require.NoError(t, errors.Join(err, alike))
					return lease.Release(ctx)
				}
				for _, err := range []error{err, alike} {
					require.Equal(t, "k", as[*guard.UpgradeError](t, err).Key)
					require.ErrorIs(t, err, guard.ErrUpgrade)
					require.False(t, guard.Ran(err))
				}
				return nil
			}, c.outer...))
		})
	}
}

func TestSharing_settings(t *testing.T) {
	shares, alone := memory.New(), &guardtest.Scripted{}
	for name, c := range map[string]struct {
		store guard.Locker
		opts  []guard.Option
		want  string
	}{
		"shared, on a backend that cannot":  {alone, []guard.Option{guard.WithShared()}, "WithShared"},
		"a limit, on a backend that cannot": {alone, []guard.Option{guard.WithLimit(2)}, "WithLimit(2)"},
		"a limit of one anywhere":           {alone, []guard.Option{guard.WithLimit(1)}, ""},
		"switched off":                      {alone, []guard.Option{guard.WithShared(), guard.WithLimit(0)}, ""},
		"a negative limit":                  {shares, []guard.Option{guard.WithLimit(-1)}, "WithLimit"},
		"a huge limit":                      {shares, []guard.Option{guard.WithLimit(1_000_001)}, "WithLimit"},
		"shared once":                       {shares, []guard.Option{guard.WithShared(), guard.WithOnce(time.Hour)}, "WithOnce"},
		"a limit once":                      {shares, []guard.Option{guard.WithOnce(time.Hour), guard.WithLimit(2)}, "WithOnce"},
		"shared":                            {shares, []guard.Option{guard.WithShared()}, ""},
		"a limit":                           {shares, []guard.Option{guard.WithLimit(2)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, ofNew := guard.New(c.store, c.opts...)
			g := openGuard(t, c.store)
			ofCall := g.Do(t.Context(), "k", nothing, c.opts...)
			require.NoError(t, g.Close(t.Context()))
			for _, err := range []error{ofNew, ofCall} {
				var setting *guard.SettingError
				if c.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorAs(t, err, &setting)
					require.Equal(t, c.want, setting.Setting)
				}
			}
		})
	}
}
