package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

// announce reports what the Guard holds until stop is called.
func announce(t *testing.T, g *guard.Guard) (stop func()) {
	t.Helper()
	i, err := inspect.New(g)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Announce(ctx) }()
	return func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	}
}

func TestProcesses_showsWhatAFleetHolds(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		stopHere, stopThere := announce(t, s.here), announce(t, s.there)
		began := time.Now()
		long, err := s.here.Acquire(t.Context(), "report", guard.WithName("reports"), guard.WithOwner("team a"))
		require.NoError(t, err)
		time.Sleep(inspect.AnnounceInterval - 100*time.Millisecond)
		short, err := s.here.Acquire(t.Context(), "short")
		require.NoError(t, err)
		aux, err := s.here.Acquire(t.Context(), "auxiliary", s.here.Adapter().Auxiliary())
		require.NoError(t, err)
		time.Sleep(time.Second)

		all, err := s.inspector.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, "worker 1", all[1].Label)
		require.Empty(t, all[0].Held)
		require.Equal(t, began.Add(inspect.AnnounceInterval).Unix(), all[1].Time.Unix())
		held := all[1].Held
		require.Len(t, held, 1)
		require.WithinDuration(t, began, held[0].Since, time.Millisecond)
		held[0].Since = time.Time{}
		require.Equal(t, guard.HeldLease{Key: "report", Name: "reports", ID: long.ID(), Owner: "team a", Fence: long.Fence()}, held[0])

		time.Sleep(inspect.AnnounceInterval)
		all, err = s.inspector.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, all[1].Held, 2)
		require.Equal(t, "report", all[1].Held[0].Key, "the oldest first")

		for _, l := range []*guard.Lease{long, short, aux} {
			require.NoError(t, l.Release(t.Context()))
		}
		stopHere()
		all, err = s.inspector.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1, "one has left")
		stopThere()
	})
}

// mortal is the store as a process sees it that dies.
type mortal struct {
	*memory.Locker
	dead *atomic.Bool
}

func (m mortal) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	if m.dead.Load() {
		return errors.New("this process is dead")
	}
	return m.Locker.Append(ctx, name, e, keep)
}

// A process that dies announces nothing more, and is shown for half a minute.
func TestProcesses_forgetsASilentProcess(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		m := mortal{s.store, &atomic.Bool{}}
		g, err := guard.New(m, guard.WithNamespace("test"))
		require.NoError(t, err)
		stop := announce(t, g)
		time.Sleep(time.Second)
		m.dead.Store(true)
		stop()
		for _, want := range []int{1, 0} {
			all, err := s.inspector.Processes(t.Context())
			require.NoError(t, err)
			require.Len(t, all, want)
			time.Sleep(30 * time.Second)
		}
	})
}

func TestAnnounce_cutsWhatIsTooLong(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		const n = 300
		for i := range n {
			l, err := s.here.Acquire(t.Context(), strings.Repeat("k", 900)+fmt.Sprint(i))
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Release(t.Context())) }()
		}
		time.Sleep(2 * time.Second)
		stop := announce(t, s.here)
		synctest.Wait()
		all, err := s.inspector.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NotEmpty(t, all[0].Held)
		require.Equal(t, n, len(all[0].Held)+all[0].More)
		stop()
	})
}
