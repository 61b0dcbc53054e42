package servers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// ttl is that of the leases under a fault.
const ttl = 3 * time.Second

// soon is how long something may take that takes a moment on an idle machine.
const soon = 30 * time.Second

// A fault happens to a site while leases are held and taken.
type fault struct {
	name string
	// forgets means that the store may lose a lease. Its holder must then find out at its next
	// renewal.
	forgets bool
	// split is for how long clients may still use a server that others have left.
	split  time.Duration
	start  func(t *testing.T, backend string) *site // nil for that of the mode
	strike func(t *testing.T, s *site)
}

var onOneServer = []fault{
	{name: "killed and started again, empty", forgets: true, strike: func(_ *testing.T, s *site) {
		s.servers[0].Kill()
		time.Sleep(500 * time.Millisecond) // the fault
		s.servers[0].Restart()
	}},
	{name: "frozen for 1 s", strike: func(_ *testing.T, s *site) {
		s.servers[0].Freeze()
		time.Sleep(time.Second) // the fault
		s.servers[0].Thaw()
	}},
}

var onSentinel = []fault{
	{name: "failover by command, with the old master alive", forgets: true, split: time.Second,
		strike: func(t *testing.T, s *site) { s.sentinel.Failover(t) }},
	{name: "failover while clients still reach the old master", forgets: true, split: time.Second, start: isolable,
		strike: func(t *testing.T, s *site) {
			s.sentinel.Path.Close()
			s.sentinel.WaitFailover(t)
		}},
}

var onNodes = []fault{
	{name: "the node of a held lease is replaced, live", strike: func(t *testing.T, s *site) {
		s.cluster.Replace(t, ofHeld(t, s))
	}},
	{name: "it is killed and started again, empty", forgets: true, strike: func(t *testing.T, s *site) {
		node := ofHeld(t, s)
		node.Kill()
		time.Sleep(500 * time.Millisecond) // the fault
		node.Restart()
	}},
}

// ofHeld returns the node of the lease that is held: its key is the hash tag of all that is kept
// for it.
func ofHeld(t *testing.T, s *site) *redistest.Server {
	t.Helper()
	return s.cluster.OwnerOf(t, s.cluster.SlotOf(t, held))
}

// held is the key of a lease that is held when the fault strikes.
const held = "held"

// run has two processes take leases again and again, and one hold a lease that the other waits
// for. The fault strikes. Leases must then be as the fault allows, and both processes must go on.
func (f fault) run(t *testing.T, m mode, open func(redis.UniversalClient) guard.Locker, backend string) {
	start := m.start
	if f.start != nil {
		start = f.start
	}
	s := start(t, backend)
	r := &referee{split: f.split}
	holder, next := newProcess(t, r, open(s.connect(t))), newProcess(t, r, open(s.connect(t)))
	// A client that sends nothing while servers change learns of it late.
	idle, err := guard.New(open(s.connect(t)), guard.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, idle.Close(context.Background())) })
	nothing := func(context.Context) error { return nil }
	require.NoError(t, idle.Do(t.Context(), held, nothing))
	first, err := holder.guard.Acquire(t.Context(), held)
	require.NoError(t, err)
	defer func() { _ = first.Release(context.Background()) }() // it may be lost, or released
	granted := make(chan *guard.Lease, 1)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	go func() {
		lease, err := next.guard.Acquire(ctx, held, guard.WithWait(guard.Forever))
		assert.NoError(t, err)
		granted <- lease
	}()
	runs := [2]int64{holder.await(t, 5), next.await(t, 5)}
	s.requireConns(t)

	f.strike(t, s)
	for i, p := range []*process{holder, next} {
		p.await(t, runs[i]+20)
	}
	require.Eventually(t, func() bool {
		err := idle.Do(t.Context(), held, nothing)
		return err == nil || errors.Is(err, guard.ErrBusy)
	}, soon, 5*time.Millisecond, "the idle process can ask again")
	select {
	case second := <-granted:
		require.True(t, f.forgets, "two holders")
		select {
		case <-first.Context().Done():
		case <-time.After(2 * ttl / 3): // a renewal is due after a third
			require.Fail(t, "the first holder has not found out")
		}
		requireSecond(t, first, second)
	case <-time.After(ttl):
		require.True(t, first.Valid(), "the lease of the holder: %v", context.Cause(first.Context()))
		require.NoError(t, first.Release(t.Context()))
		requireSecond(t, first, <-granted)
	}
	for _, p := range []*process{holder, next} {
		p.end()
	}
	require.Empty(t, r.wrong())
	if !f.forgets {
		require.Zero(t, r.overlaps.Load(), "runs at the same time as another")
	}
	s.requireUndenied(t)
}

func requireSecond(t *testing.T, first, second *guard.Lease) {
	t.Helper()
	require.NotNil(t, second)
	require.Greater(t, second.Fence(), first.Fence())
	require.True(t, second.Valid())
	require.NoError(t, second.Release(t.Context()))
}
