package guardcron_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The context of a run does not know yet that the lease has gone, as in a process that was paused.
func TestRecords_sayLostOfARunThatReturnsBeforeItsContextKnows(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", func(ctx context.Context) error {
			const key = "cron:job@2026-06-15T13:00:00Z"
			tick, err := s.store.Show(ctx, key)
			require.NoError(s.t, err)
			taken, err := s.store.Release(ctx, driver.Claim{Key: key, ID: tick.Holders[0].ID}, driver.After{})
			require.NoError(s.t, err)
			require.True(s.t, taken)
			return ctx.Err()
		})
		p.cron.Start()
		s.until("2026-06-15T13:00:10Z")
		require.Equal(s.t, []string{"13:00:00 lost"}, p.outcomes("job"))
		require.Contains(s.t, p.records("job")[0].Reason, "lost")
	})
}

// Its process dies, and a later tick begins before its lease ends. Later ticks are left out while
// the job runs, but it was not.
func TestTakeover_waitsForALaterTickThatHasBegun(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		dead, p := s.process("dead", setup{}), s.process("a", setup{})
		lease, err := dead.guard.Acquire(context.Background(), "cron:job@2026-06-15T12:01:00Z")
		require.NoError(s.t, err)
		p.add("job", "* * * * *", lasting(50*time.Second), guardcron.WithStartDeadline(5*time.Minute))
		p.cron.Start()
		s.until("2026-06-15T12:02:10Z")
		require.Equal(s.t, []string{"2026-06-15T12:02:00Z"}, s.ticks())
		require.NoError(s.t, lease.Release(context.Background()))
		s.until("2026-06-15T12:04:30Z")
		require.Contains(s.t, p.outcomes("job"), "12:01:00 ran")
		s.sleep(time.Minute)
	})
}

// An error of the store is not the answer that the job runs.
func TestTick_isNotLeftOutBecauseTheStoreDidNotAnswer(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o recorder
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil, guardcron.WithObserver(o.record))
		p.cron.Start()
		s.sleep(time.Second)
		spoilt := func(c linetest.Call) bool { return c.Key == "cron:job" && c.Op == driver.OpAcquire }
		p.line.spoilt.Store(&spoilt)
		s.until("2026-06-15T12:01:30Z")
		asked := o.outcomes()
		require.Equal(s.t, []string{"12:01:00 unavailable"}, slices.Compact(slices.Clone(asked)))
		require.Less(s.t, len(asked), 35, "there is a pause between two requests")
		require.NotEmpty(s.t, o.records[0].Reason)
		p.line.spoilt.Store(nil)
		s.until("2026-06-15T12:02:30Z")
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran"}, o.outcomes()[len(asked):])
	})
}

// The store refuses one call from the start, the first, the second and so on, and then answers. No
// tick is lost, and none is run twice.
func TestTick_isRunWhicheverCallIsRefused(t *testing.T) {
	t.Parallel()
	for nth := range int32(40) {
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var calls atomic.Int32
				spoilt := func(c linetest.Call) bool { return c.Op != driver.OpRenew && calls.Add(1) == nth+1 }
				for _, who := range []string{"a", "b"} {
					p := s.process(who, setup{})
					p.line.spoilt.Store(&spoilt)
					p.add("job", "* * * * *", lasting(2*time.Second), guardcron.WithStartDeadline(50*time.Second))
					p.cron.Start()
				}
				s.until("2026-06-15T12:04:30Z")
				require.Equal(s.t, every(s.t, time.Minute, "2026-06-15T12:01:00Z", "2026-06-15T12:04:00Z"), s.ticks())
			})
		})
	}
}
