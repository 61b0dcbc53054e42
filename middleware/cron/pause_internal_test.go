package guardcron

import (
	"context"
	"errors"
	"testing"
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

	cut bool
}

func (f *forgetful) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	if f.cut && counter == pauses {
		return 0, driver.NewStoreError("forgetful", driver.OpLedger, name, errors.New("cut"))
	}
	return f.Locker.Raise(ctx, name, counter, to)
}

// A job that may be paused does not run, and its tick is not lost.
func TestStart_doesNotRunWhatMayBePaused(t *testing.T) {
	store := &forgetful{Locker: memory.New(), cut: true}
	g, err := guard.New(store)
	require.NoError(t, err)
	var told []Record
	jobs, err := New(g, cron.New(), WithObserver(func(r Record) { told = append(told, r) }))
	require.NoError(t, err)
	runs := 0
	b, err := jobs.newJob("job", cron.Every(time.Hour), func(context.Context) error { runs++; return nil }, nil)
	require.NoError(t, err)
	tick := b.now().Truncate(time.Second)
	b.fire(tick, false)
	require.Zero(t, runs)
	require.Len(t, told, 1)
	require.Equal(t, Unavailable, told[0].Outcome)
	require.Contains(t, told[0].Reason, "cut")

	store.cut = false
	b.settle(tick)
	b.fire(tick, false)
	require.Equal(t, 1, runs)
	require.NoError(t, jobs.Close(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}
