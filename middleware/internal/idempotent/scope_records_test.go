package idempotent_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A scope never has more records than it may, whatever the process. What it may have runs, except
// for the hundredths that other processes have reserved. What is not kept does not count.
func TestScopeRecords_areBoundedAcrossProcesses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ most, processes, spare int }{
		"one record":             {1, 3, 0},
		"few records":            {10, 3, 0},
		"one at a time":          {150, 4, 0},
		"several at a time":      {1000, 3, 3 * 10},
		"several in one process": {1000, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				processes := make([]*site, c.processes)
				for i := range processes {
					processes[i] = newSite(t, store, idempotency.WithMaxScopeRecords(c.most), idempotency.WithOnce(time.Hour))
				}
				keys := 0
				var seen []string // keys whose answers are recorded
				fill := func() (records int) {
					for range c.most + 2*c.processes + c.spare {
						keys++
						key := fmt.Sprint(keys)
						process := processes[keys%len(processes)]
						process.send(t.Context(), request{scope: "greedy", key: "fails" + key, handler: fails})
						got := process.send(t.Context(), request{scope: "greedy", key: key})
						if got.Result == idempotency.Ran {
							records++
							seen = append(seen, key)
							continue
						}
						require.Equal(t, idempotency.TooManyKeys, got.Result)
						require.False(t, guard.Ran(got.Err))
						require.Positive(t, got.RetryAfter)
						require.LessOrEqual(t, got.RetryAfter, 65*time.Minute*5/4)
					}
					return records
				}
				first := fill()
				require.LessOrEqual(t, first, c.most)
				require.GreaterOrEqual(t, first, c.most-c.spare)
				require.Equal(t, idempotency.Ran, processes[0].send(t.Context(), request{scope: "other", key: "1"}).Result)
				require.Equal(t, idempotency.Replayed, processes[0].send(t.Context(), request{scope: "greedy", key: seen[0]}).Result)

				time.Sleep(59 * time.Minute) // the records are there still
				require.LessOrEqual(t, first+fill(), c.most)
				time.Sleep(time.Hour + 30*time.Minute)
				require.GreaterOrEqual(t, fill(), c.most-c.spare, "the records have ended")
			})
		})
	}
}

// An uncounting store keeps leases, and its ledger fails.
type uncounting struct{ *memory.Locker }

func (uncounting) Raise(context.Context, string, string, int64) (int64, error) {
	return 0, guardtest.Fail(driver.KindConnection)
}

// If the store cannot count, nothing runs, and nothing is lost.
func TestScopeRecords_aStoreThatCannotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, uncounting{memory.New()}, idempotency.WithMaxScopeRecords(1))
		got := s.send(t.Context(), request{scope: "a", key: "1"})
		require.Equal(t, idempotency.Unavailable, got.Result)
		require.False(t, guard.Ran(got.Err))
		require.Zero(t, s.runs)
	})
}

// A counting store counts how often it was asked about counters.
type counting struct {
	*memory.Locker
	asked int
}

func (c *counting) Raise(ctx context.Context, name, slot string, to int64) (int64, error) {
	c.asked++
	return c.Locker.Raise(ctx, name, slot, to)
}

// A client that has used up its records costs the store no more than one question for each call.
func TestScopeRecords_aFullScopeIsCheap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Locker: memory.New()}
		s := newSite(t, store, idempotency.WithMaxScopeRecords(1))
		require.Equal(t, idempotency.Ran, s.send(t.Context(), request{scope: "greedy", key: "first"}).Result)
		for _, later := range []time.Duration{0, 7 * time.Hour} { // in the next period, too
			time.Sleep(later)
			require.Equal(t, idempotency.TooManyKeys, s.send(t.Context(), request{scope: "greedy", key: "second"}).Result)
			store.asked = 0
			for key := range 10 {
				require.Equal(t, idempotency.TooManyKeys, s.send(t.Context(), request{scope: "greedy", key: fmt.Sprint(key)}).Result)
			}
			require.LessOrEqual(t, store.asked, 10)
		}
	})
}

// In shadow mode, what would be refused runs, and leaves nothing.
func TestScopeRecords_inShadowMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newStore(), idempotency.WithMaxScopeRecords(1), idempotency.WithShadow())
		for key, result := range []idempotency.Result{idempotency.Ran, idempotency.TooManyKeys, idempotency.TooManyKeys} {
			got := s.send(t.Context(), request{scope: "a", key: fmt.Sprint(key)})
			require.Equal(t, result, got.Result)
			require.Equal(t, key == 0, got.Kept == idempotency.KeepAnswer)
		}
		require.Equal(t, 3, s.runs)
	})
}
