package guardcron

import (
	"context"
	"testing"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// A store that is frozen while the beginning of a run is written down can take longer than the
// lease lasts.
func TestCall_doesNotBeginWhatHasLostItsLease(t *testing.T) {
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	jobs, err := New(g, cron.New())
	require.NoError(t, err)
	b, err := jobs.newJob("job", "", cron.Every(0), func(context.Context) error {
		require.Fail(t, "it was begun")
		return nil
	}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&guard.LostError{Key: "job", Reason: guard.LossExpired})
	require.ErrorIs(t, b.call(ctx, nil, entry{}, nil), guard.ErrLost)
	records, err := jobs.Records(t.Context(), "job", 1)
	require.NoError(t, err)
	require.Equal(t, Lost, records[0].Result)
	require.NoError(t, jobs.Close(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}
