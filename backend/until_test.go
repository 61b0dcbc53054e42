package backend_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	operator "github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

const year = 365 * 24 * time.Hour

// What is promised until something lasts until then: after 400 days, for which a ledger keeps what
// nobody uses, and after years.
func TestUntil_whatIsPromisedLastsForYears(t *testing.T) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			server := miniredis.RunT(t)
			now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
			server.SetTime(now)
			pass := func(d time.Duration) {
				now = now.Add(d)
				server.FastForward(d)
				server.SetTime(now)
			}
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			l := open(rdb)
			g, err := guard.New(l, guard.WithNamespace("test"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
			c, err := guardcron.NewControl(g)
			require.NoError(t, err)
			ledger := l.(driver.Ledger)
			raise := func(counter string, to int64) int64 {
				was, err := ledger.Raise(t.Context(), "own", counter, to)
				require.NoError(t, err)
				return was
			}

			require.NoError(t, c.Pause(t.Context(), "paused", 0, operator.By{Actor: "alice"}))
			require.NoError(t, c.Pause(t.Context(), "paused for years", 20*year, operator.By{Actor: "alice"}))
			require.NoError(t, c.Pause(t.Context(), "resumed", 0, operator.By{Actor: "alice"}))
			require.NoError(t, c.Resume(t.Context(), "resumed", operator.By{Actor: "alice"}))
			require.NoError(t, g.Do(t.Context(), "done", nothing, guard.WithOnce(10*year)))
			require.NoError(t, g.Do(t.Context(), "kept", nothing, guard.WithMinHold(10*year)))
			require.Zero(t, raise("read", 7))
			for _, silence := range []time.Duration{401 * 24 * time.Hour, year, 3 * year, 4 * year} {
				pass(silence)
				for job, want := range map[string]bool{"paused": true, "paused for years": true, "resumed": false} {
					paused, err := c.Paused(t.Context(), job)
					require.NoError(t, err)
					require.Equal(t, want, paused, "%s after %v", job, silence)
				}
				require.ErrorIs(t, g.Do(t.Context(), "done", nothing), guard.ErrDone)
				require.ErrorIs(t, g.Do(t.Context(), "kept", nothing), guard.ErrBusy)
			}
			pass(year) // more than ten years by now
			require.NoError(t, g.Do(t.Context(), "done", nothing))
			require.NoError(t, g.Do(t.Context(), "kept", nothing))

			require.Zero(t, raise("read", 7), "nobody has read it for 400 days")
			for range 10 {
				pass(300 * 24 * time.Hour)
				require.EqualValues(t, 7, raise("read", 0), "a counter that is read is kept")
			}
			require.NoError(t, c.Resume(t.Context(), "paused", operator.By{Actor: "alice"}))
			paused, err := c.Paused(t.Context(), "paused")
			require.NoError(t, err)
			require.False(t, paused)
		})
	}
}
