package guardcron

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// forgetful is a store that cannot say whether a job is paused.
type forgetful struct {
	*memory.Locker

	cut    atomic.Bool
	hangs  atomic.Bool
	within atomic.Int64 // the time that the call has which hangs
}

func (f *forgetful) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	if f.hangs.Load() && slices.Contains(counters, pauses) {
		end, _ := ctx.Deadline()
		f.within.Store(int64(time.Until(end)))
		<-ctx.Done()
		return nil, driver.NewStoreError("forgetful", driver.OpLedger, names[0], ctx.Err())
	}
	if f.cut.Load() && slices.Contains(counters, pauses) {
		return nil, driver.NewStoreError("forgetful", driver.OpLedger, names[0], errors.New("cut"))
	}
	return f.Locker.CountersOf(ctx, names, counters)
}

// A job that may be paused does not run, and its tick is not lost.
func TestStart_doesNotRunWhatMayBePaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &forgetful{Locker: memory.New()}
		g, err := guard.New(store, guard.WithNamespace("test"))
		require.NoError(t, err)
		var observed []Record
		c := cron.New(cron.WithLocation(time.UTC))
		jobs, err := New(g, c, WithObserver(func(r Record) { observed = append(observed, r) }))
		require.NoError(t, err)
		runs := 0
		_, err = jobs.AddFunc("job", "0 * * * *", func(context.Context) error { runs++; return nil })
		require.NoError(t, err)
		c.Start()
		time.Sleep(time.Minute) // virtual time
		store.cut.Store(true)
		time.Sleep(time.Hour - 50*time.Second) // until ten seconds after the tick
		synctest.Wait()
		require.Zero(t, runs)
		require.NotEmpty(t, observed)
		require.Equal(t, Unavailable, observed[0].Result)
		require.Contains(t, observed[0].Reason, "cut")

		store.cut.Store(false)
		time.Sleep(15 * time.Second) // virtual time
		synctest.Wait()
		require.Equal(t, 1, runs)
		require.Equal(t, Ran, observed[len(observed)-1].Result)
		<-c.Stop().Done()
		require.NoError(t, jobs.Close(t.Context()))
		require.NoError(t, g.Close(t.Context()))
	})
}

// A tick holds its lease, and perhaps that of the job, while it asks whether the job is paused. A
// store that does not answer must not keep the job from other ticks.
func TestStart_asksForAPauseNoLongerThanTheTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &forgetful{Locker: memory.New()}
		g, err := guard.New(store, guard.WithNamespace("test"))
		require.NoError(t, err)
		c := cron.New(cron.WithLocation(time.UTC))
		jobs, err := New(g, c, WithLease(guard.WithTTL(time.Second)))
		require.NoError(t, err)
		_, err = jobs.AddFunc("job", "* * * * *", func(context.Context) error { return nil })
		require.NoError(t, err)
		c.Start()
		store.hangs.Store(true)
		time.Sleep(time.Minute + time.Second/2) // virtual time
		synctest.Wait()
		require.Equal(t, time.Second, time.Duration(store.within.Load()))
		store.hangs.Store(false)
		<-c.Stop().Done()
		require.NoError(t, jobs.Close(t.Context()))
		require.NoError(t, g.Close(t.Context()))
	})
}
