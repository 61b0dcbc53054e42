package sqltest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Replicas that start at the same time all create the table.
func createsTheTable(t *testing.T, s *Store) {
	db := s.Client(t)
	lockers := map[string]Locker{"": s.New(db)}
	for name, open := range s.Tables {
		lockers[name] = open(db)
	}
	for name, l := range lockers {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := l.Migrate(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		MustAcquire(t, l, Claim("key", Long))
	}
	Exec(t, db, `DROP TABLE onerun_leases`)
	Exec(t, db, s.Schema)
	Exec(t, db, s.Schema)
	MustAcquire(t, s.New(s.Client(t)), Claim("key", Long))
}

// RequireRefused asserts that a Guard and Migrate refuse Lockers with settings that cannot work.
func RequireRefused(t testing.TB, lockers ...Locker) {
	t.Helper()
	for _, l := range lockers {
		_, err := guard.New(l)
		var setting *driver.SettingError
		require.ErrorAs(t, err, &setting)
		_, err = l.TryAcquire(t.Context(), Claim("key", Long))
		RequireKind(t, driver.KindSettings, err)
		require.Error(t, l.Migrate(t.Context()))
		l.Subscribe("key", "", func(time.Duration) {})()
	}
}

// A renewal that has no answer yet may be repeated, and both may go out together.
func claimTwiceInABatch(t *testing.T, s *Store) {
	l, _ := s.Migrated(t)
	low, other := MustAcquire(t, l, Claim("key", Long)).Claim, Claim("another", Long)
	low.Fence += 5
	high := low
	high.Fence += 2
	for first := range 2 {
		claims := []driver.Claim{low, high, other}
		claims[0], claims[first] = claims[first], claims[0]
		held := make([]bool, len(claims))
		driver.Await(t.Context(), l, driver.OpRenew, claims, driver.After{}, func(i int, a driver.Answer, err error) {
			require.NoError(t, err)
			held[i] = a.Held
		})
		require.Equal(t, []bool{true, true, false}, held)
		info, err := l.Show(t.Context(), "key")
		require.NoError(t, err)
		require.Equal(t, high.Fence, info.Holders[0].Fence)
		low.Fence, high.Fence = low.Fence+10, high.Fence+10
	}
}

func cleans(t *testing.T, s *Store) {
	l, db := s.Migrated(t)
	last := map[string]uint64{}
	for i := range 6 {
		lease := MustAcquire(t, l, Claim("released "+strconv.Itoa(i), Long))
		MustRelease(t, l, lease.Claim)
		last[lease.Key] = lease.Fence
	}
	MustAcquire(t, l, Claim("held", 100*time.Hour))
	done, ahead := MustAcquire(t, l, Claim("done", Long)), MustAcquire(t, l, Claim("ahead", Long))
	_, err := l.Release(t.Context(), done.Claim, driver.After{Keep: 100 * time.Hour, Done: true})
	require.NoError(t, err)
	ahead.Fence += 1 << 30
	_, err = l.Renew(t.Context(), ahead.Claim)
	require.NoError(t, err)
	MustRelease(t, l, ahead.Claim)

	clean := func(want int) {
		t.Helper()
		deleted, err := l.Clean(t.Context(), 4)
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	clean(0) // a row is kept for a day
	Exec(t, db, s.Older(3))
	time.Sleep(1200 * time.Millisecond) // the clock passes the fences, in whole seconds
	clean(4)
	clean(2)
	clean(0)
	for key, fence := range last {
		require.Greater(t, MustAcquire(t, l, Claim(key, Long)).Fence, fence)
	}
	require.Greater(t, MustAcquire(t, l, Claim("ahead", Long)).Fence, ahead.Fence)
	RequireState(t, driver.Busy, l, "held")
	RequireState(t, driver.Done, l, "done")
}

// Releases delete old rows.
func cleansByItself(t *testing.T, s *Store) {
	l, db := s.Migrated(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 20 {
				c := Claim(fmt.Sprint("old ", i, n), Long)
				_, _ = l.TryAcquire(t.Context(), c)
				_, _ = l.Release(t.Context(), c, driver.After{})
			}
		})
	}
	all.Wait()
	Exec(t, db, s.Older(3))
	time.Sleep(1200 * time.Millisecond) // as above
	// An attempt to delete them can fail, and the next one comes 256 releases later.
	for left, deadline := -1, time.Now().Add(time.Minute); left != 4; {
		require.True(t, time.Now().Before(deadline), "%d rows", left)
		for i := range 64 {
			MustRelease(t, l, MustAcquire(t, l, Claim("key "+strconv.Itoa(i%4), Long)).Claim)
		}
		left = Number(t, db, `SELECT count(*) FROM onerun_leases WHERE state <> 'gate'`)
	}
}

// What is promised until something lasts until then, whatever the Locker deletes meanwhile: after
// 400 days, for which a ledger keeps what nobody uses, and after years.
func lastsForYears(t *testing.T, s *Store) {
	l, db := s.Migrated(t)
	g, err := guard.New(l, guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	c, err := guardcron.NewControl(g)
	require.NoError(t, err)
	nothing := func(context.Context) error { return nil }
	pass := func(days int) {
		Exec(t, db, s.Older(days))
		_, err = l.Clean(t.Context(), 1000)
		require.NoError(t, err)
	}
	raise := func(to int64) int64 {
		was, err := l.Raise(t.Context(), "own", "read", to)
		require.NoError(t, err)
		return was
	}

	require.NoError(t, c.Pause(t.Context(), "paused", 0, inspect.By{Actor: "alice"}))
	require.NoError(t, c.Pause(t.Context(), "paused for years", 20*365*24*time.Hour, inspect.By{Actor: "alice"}))
	require.NoError(t, g.Do(t.Context(), "done", nothing, guard.WithOnce(3650*24*time.Hour)))
	require.NoError(t, g.Do(t.Context(), "kept", nothing, guard.WithMinHold(3650*24*time.Hour)))
	require.Zero(t, raise(7))
	for _, days := range []int{404, 365, 1000, 1800} {
		pass(days)
		for _, job := range []string{"paused", "paused for years"} {
			paused, err := c.Paused(t.Context(), job)
			require.NoError(t, err)
			require.True(t, paused, "%s after %d days", job, days)
		}
		require.ErrorIs(t, g.Do(t.Context(), "done", nothing), guard.ErrDone)
		require.ErrorIs(t, g.Do(t.Context(), "kept", nothing), guard.ErrBusy)
	}
	pass(365) // more than ten years by now
	require.NoError(t, g.Do(t.Context(), "done", nothing))
	require.NoError(t, g.Do(t.Context(), "kept", nothing))

	require.Zero(t, raise(7), "nobody has used it for 400 days")
	for range 10 {
		pass(300)
		require.EqualValues(t, 7, raise(0), "a counter that is read is kept")
	}
}
