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
	err = b.call(ctx, nil, entry{}, func(_ context.Context, o Result, begun bool) error {
		require.Equal(t, Lost, o)
		require.False(t, begun)
		return nil
	})
	require.ErrorIs(t, err, guard.ErrLost)
	require.NoError(t, jobs.Close(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}
