package guard_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// calls are the calls on a Locker, in their order.
type calls struct {
	mu  sync.Mutex
	all []string
}

func (c *calls) add(op driver.Op, claims ...driver.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range claims {
		c.all = append(c.all, string(op)+" "+claim.Key+" "+claim.ID)
	}
}

func (c *calls) sorted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.all))
}

// An innerStore has all optional interfaces. It records each claim, also those of a batch.
type innerStore struct {
	*memory.Locker
	calls calls
}

func (s *innerStore) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	s.calls.add(driver.OpAcquire, c)
	return s.Locker.TryAcquire(ctx, c)
}

func (s *innerStore) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	s.calls.add(driver.OpRenew, c)
	return s.Locker.Renew(ctx, c)
}

func (s *innerStore) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	s.calls.add(driver.OpRelease, c)
	return s.Locker.Release(ctx, c, after)
}

func (s *innerStore) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	startNow(ctx, s, op, claims, after, done)
}

// An outerStore records the calls that it passes on.
type outerStore struct {
	driver.Wrapper
	calls calls
}

func (s *outerStore) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	s.calls.add(driver.OpAcquire, c)
	return s.Wrapper.TryAcquire(ctx, c)
}

func (s *outerStore) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	s.calls.add(driver.OpRenew, c)
	return s.Wrapper.Renew(ctx, c)
}

func (s *outerStore) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	s.calls.add(driver.OpRelease, c)
	return s.Wrapper.Release(ctx, c, after)
}

func TestWrapper_isNeverBypassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &innerStore{Locker: memory.New()}
		outer := &outerStore{Wrapper: driver.Wrapper{Locker: inner}}
		g := openGuard(t, outer, guard.WithTTL(ttl))
		require.Equal(t, "memory", g.Adapter().Store())
		other, err := inner.Locker.TryAcquire(t.Context(), driver.Claim{Key: "b", ID: "other", Owner: "other", TTL: ttl})
		require.NoError(t, err)
		require.Equal(t, driver.Granted, other.State)

		work := sleeping(2 * ttl)
		waits := []guard.Option{guard.WithWait(time.Hour), guard.WithFair()}
		var all sync.WaitGroup
		all.Go(func() { require.NoError(t, g.DoAll(t.Context(), []string{"a", "b", "c"}, work, waits...)) })
		for range 3 {
			all.Go(func() { require.NoError(t, g.Do(t.Context(), "d", work, waits...)) })
			all.Go(func() { require.NoError(t, g.Do(t.Context(), "a", work, append(waits, guard.WithShared())...)) })
		}
		all.Go(func() {
			leaves := within(t, ttl/2)
			require.Error(t, g.Do(leaves, "b", work, waits...))
		})
		all.Wait()
		require.NoError(t, g.Close(t.Context()))
		require.Equal(t, inner.calls.sorted(), outer.calls.sorted())
		require.Greater(t, len(outer.calls.all), 30)
		_, isInspector := g.Adapter().Inspector()
		require.False(t, isInspector, "Break would pass it by")
	})
}

func TestWrapper_passesOnWhatTheInnerLockerHas(t *testing.T) {
	inner := memory.New()
	full, none := driver.Wrapper{Locker: inner}, driver.Wrapper{Locker: &guardtest.Scripted{}}
	ctx := t.Context()
	require.NoError(t, full.Append(ctx, "job", driver.Entry{At: 1, Record: []byte("r")}, 1))
	entries, err := driver.Entries(ctx, full, "job", 1)
	require.NoError(t, err)
	require.Equal(t, []driver.Entry{{At: 1, Record: []byte("r")}}, entries)
	_, err = full.Raise(ctx, "job", "n", 5)
	require.NoError(t, err)
	values, err := full.CountersOf(ctx, []string{"job"}, []string{"n"})
	require.NoError(t, err)
	require.Equal(t, []int64{5}, values)
	require.True(t, full.Describe().Queue)

	for _, err := range []error{
		none.Append(ctx, "job", driver.Entry{At: 1, Record: []byte("r")}, 1),
		second(none.EntriesOf(ctx, []string{"job"}, 1)),
		second(none.Raise(ctx, "job", "n", 5)), second(none.CountersOf(ctx, []string{"job"}, []string{"n"})),
	} {
		require.Equal(t, driver.KindUnsupported, as[*guard.StoreError](t, err).Kind)
	}
	require.True(t, none.Describe().Polls, "it never notifies")
	none.Subscribe("k", "", func(time.Duration) { require.Fail(t, "notified") })()
	require.Empty(t, none.Warnings(ctx))
}
