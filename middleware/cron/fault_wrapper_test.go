package guardcron_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The process need not have been up at the ticks of a wrapped job between two firings.
func TestWrapper_takesNoTickForMissed(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	c := cron.New()
	jobs, err := guardcron.New(g, c)
	require.NoError(t, err)
	wrapper, err := jobs.Wrapper("job", parsed(t, "* * * * * *"), guardcron.WithStartDeadline(time.Second), onMissed(func(r guardcron.Record) { t.Errorf("missed: %+v", r) }))
	require.NoError(t, err)
	runs := 0
	job := wrapper(cron.FuncJob(func() { runs++ }))
	job.Run()
	time.Sleep(4 * time.Second) // for ticks of the period at which the schedule does not fire
	job.Run()
	require.NoError(t, jobs.Close(t.Context()))
	require.NoError(t, g.Close(t.Context()))
	require.Equal(t, 2, runs)
	records, err := jobs.Records(t.Context(), "job", 100)
	require.NoError(t, err)
	require.Len(t, records, 2)
}
