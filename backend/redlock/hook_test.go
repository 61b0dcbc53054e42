package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func TestWithHook_reportsEachCallToANode(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	reported := map[string][]error{}
	hook := guard.Hook{Call: func(_ context.Context, e guard.CallEvent) {
		mu.Lock()
		defer mu.Unlock()
		reported[e.Node+" "+string(e.Op)] = append(reported[e.Node+" "+string(e.Op)], e.Err)
		panic("a hook of the test's")
	}}
	broken := &guardtest.Scripted{
		Inner: memory.New(),
		OnAcquire: func(context.Context, int, driver.Claim) (driver.Answer, error) {
			return driver.Answer{}, guardtest.Fail(driver.KindConnection)
		},
		OnRenew: func(context.Context, int, driver.Claim) (bool, error) { return false, nil },
	}
	l := redlock.New([]guard.Locker{memory.New(), broken, memory.New()}, redlock.WithHook(hook))
	c := driver.Claim{Key: "k", ID: "id", Owner: "id", TTL: ttl}
	grant, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	c.Fence = grant.Fence
	held, err := l.Renew(t.Context(), c)
	require.NoError(t, err)
	require.True(t, held)
	_, err = l.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a majority is enough for the calls
		mu.Lock()
		defer mu.Unlock()
		return len(reported["node 1 release"]) > 0 && len(reported["node 3 release"]) > 0 && len(reported["node 2 renew"]) > 0
	}, time.Minute, 5*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.NoError(t, reported["node 1 acquire"][0])
	require.ErrorIs(t, reported["node 2 acquire"][0], guard.ErrStore)
	require.ErrorIs(t, reported["node 2 renew"][0], guard.ErrLost, "it has forgotten the lease")
}

func TestNew_refusesAnOptionThatIsNil(t *testing.T) {
	t.Parallel()
	_, err := guard.New(redlock.New([]guard.Locker{memory.New(), memory.New(), memory.New()}, nil))
	var refused *guard.SettingError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "Option", refused.Setting)
}
