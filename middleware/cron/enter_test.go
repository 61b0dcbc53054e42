package guardcron_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// waiting returns Jobs with a tick that waits for a job which runs elsewhere, and the key of that
// tick.
func waiting(t *testing.T, locker guard.Locker, opts ...guardcron.Option) (g *guard.Guard, jobs *guardcron.Jobs, tick string) {
	t.Helper()
	var once sync.Once
	waits := make(chan string)
	g, err := guard.New(locker, guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	elsewhere, err := g.Acquire(context.Background(), "cron:report")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, elsewhere.Release(context.Background())) })
	c := cron.New(cron.WithSeconds())
	hook := guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
		if e.Key != "cron:report" && e.Err == nil {
			once.Do(func() { waits <- e.Key })
		}
	}}
	opts = append(opts, guardcron.WithOverlap(guardcron.Wait), guardcron.WithLease(guard.WithHook(hook)))
	jobs, err = guardcron.New(g, c, opts...)
	require.NoError(t, err)
	_, err = jobs.AddFunc("report", "* * * * * *", func(context.Context) error { return errors.New("it runs") })
	require.NoError(t, err)
	c.Start()
	tick = <-waits
	c.Stop()
	time.Sleep(50 * time.Millisecond) // until it waits
	return g, jobs, tick
}

func TestJobs_aTickThatWaitsForTheJobIsLeftToOthersWhenJobsAreClosed(t *testing.T) {
	t.Parallel()
	g, jobs, tick := waiting(t, memory.New())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	begin := time.Now()
	require.NoError(t, jobs.Close(ctx))
	require.Less(t, time.Since(begin), time.Second)
	require.NoError(t, g.Do(t.Context(), tick, func(context.Context) error { return nil }, guard.WithOnce(time.Hour)), "another process can run it")
	records, err := jobs.Records(t.Context(), "report", 10)
	require.NoError(t, err)
	require.Empty(t, records)
}

func TestJobs_aTickThatIsLostWhileItWaitsForTheJobIsNotSkipped(t *testing.T) {
	t.Parallel()
	var observed []guardcron.Record
	// A tick that waits has a lease of its own, which ends here as it does with a store that does
	// not answer.
	g, jobs, tick := waiting(t, memory.New(), guardcron.WithObserver(func(r guardcron.Record) { observed = append(observed, r) }),
		guardcron.WithLease(guard.WithoutRenewal(), guard.WithTTL(time.Second)))
	require.NoError(t, g.Do(t.Context(), tick, func(context.Context) error { return nil }, guard.WithOnce(time.Hour), guard.WithWait(3*time.Second)))
	require.NoError(t, jobs.Close(t.Context()))
	require.Empty(t, observed)
	records, err := jobs.Records(t.Context(), "report", 10)
	require.NoError(t, err)
	require.Empty(t, records)
}
