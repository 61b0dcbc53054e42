package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// Observe returns each change: nobody, a, an outage, nobody, b.
func TestObserve_returnsEachChange(t *testing.T) {
	t.Parallel()
	inElection(t, func(e *election) {
		observer := e.voter(guard.WithLabel("observer"))
		ctx, cancel := context.WithCancel(context.Background())
		seen := make(chan any, 100)
		go func() {
			defer close(seen)
			for leader, err := range observer.Observe(ctx) {
				if err != nil {
					seen <- err
					continue
				}
				seen <- leader
			}
		}()
		require.Equal(e.t, guard.Leader{}, <-seen)
		e.a.run()
		e.a.leads(0)
		first := (<-seen).(guard.Leader)
		fence, _ := e.a.Leading()
		require.Equal(e.t, fence, first.Fence)
		require.NotEmpty(e.t, first.Label)
		require.NotEmpty(e.t, first.ID)
		require.WithinDuration(e.t, time.Now(), first.Since, 2*time.Second)
		require.InDelta(e.t, ttl, first.Left, float64(2*time.Second))
		time.Sleep(time.Hour) // virtual time
		require.Empty(e.t, seen, "renewals are no change")

		observer.away.Store(true)
		require.ErrorIs(e.t, (<-seen).(error), guard.ErrStore)
		time.Sleep(time.Minute) // virtual time
		require.Empty(e.t, seen, "an outage is one change")
		observer.away.Store(false)
		again := (<-seen).(guard.Leader)
		require.Equal(e.t, first.Fence, again.Fence)

		e.a.cancel()
		<-e.a.ended
		require.Equal(e.t, guard.Leader{}, <-seen)
		e.b.run()
		e.b.leads(0)
		require.Greater(e.t, (<-seen).(guard.Leader).Fence, first.Fence)
		cancel()
		for range seen {
			require.Fail(e.t, "it ends with its context")
		}
		require.NoError(e.t, observer.guard.Close(context.Background()))
	})
}

// A backend that shows no keys can elect a leader, but not show it.
func TestLeader_ofABackendThatShowsNothing(t *testing.T) {
	t.Parallel()
	g := newGuard(t, struct{ guard.Locker }{memory.New()})
	c, err := g.Candidate("leader", func(context.Context) error { return guard.ErrStopLeading })
	require.NoError(t, err)
	require.NoError(t, c.Run(t.Context()))
	_, err = c.Leader(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	n := 0
	for leader, err := range c.Observe(t.Context()) {
		n++
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.Zero(t, leader)
	}
	require.Equal(t, 1, n)
}
