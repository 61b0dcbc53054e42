package guardtest_test

import (
	"context"
	"errors"
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

func TestScripted_grantsEverythingByDefault(t *testing.T) {
	var s guardtest.Scripted
	var last uint64
	for _, id := range []string{"a", "b", "c"} {
		c := driver.Claim{Key: "key", ID: id, Fences: driver.FenceRequest{Reserve: 2}}
		g, err := s.TryAcquire(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State)
		require.Greater(t, g.Fence, last)
		again, err := s.TryAcquire(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, driver.Answer{State: driver.Granted, Fence: g.Fence}, again, "a repeated claim")
		require.Equal(t, 2, g.Reserved)
		last = g.Fence + 2

		held, err := s.Renew(t.Context(), c)
		require.NoError(t, err)
		require.True(t, held)
		held, err = s.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
	}
}

func TestScripted_asksInnerWhatIsNotScripted(t *testing.T) {
	s := &guardtest.Scripted{
		Inner: memory.New(),
		OnRelease: func(_ context.Context, n int, _ driver.Claim, _ driver.After) (bool, error) {
			if n == 1 {
				return false, guardtest.Fail(driver.KindConnection)
			}
			return false, guardtest.ErrUnscripted
		},
	}
	c := driver.Claim{Key: "key", ID: "a", TTL: time.Minute, Label: "first"}
	_, err := s.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	held, err := s.Renew(t.Context(), driver.Claim{Key: "key", ID: "b", TTL: time.Minute})
	require.NoError(t, err)
	require.False(t, held)
	_, err = s.Release(t.Context(), c, driver.After{})
	require.ErrorIs(t, err, guard.ErrStore)
	g, err := s.TryAcquire(t.Context(), driver.Claim{Key: "key", ID: "b", TTL: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "first", g.Label)
	held, err = s.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
	require.True(t, held)
}

func TestScripted_answersAsScriptedAndRecordsTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := guardtest.Fail(driver.KindOOM)
		s := &guardtest.Scripted{
			OnAcquire: func(ctx context.Context, n int, _ driver.Claim) (driver.Answer, error) {
				switch n {
				case 1:
					return guardtest.Busy(time.Second, "web-2")
				case 2:
					return guardtest.Done([]byte("record"))
				}
				return driver.Answer{}, guardtest.Hang(ctx)
			},
			OnRenew: func(context.Context, int, driver.Claim) (bool, error) { return false, failure },
			OnRelease: func(context.Context, int, driver.Claim, driver.After) (bool, error) {
				return false, errors.ErrUnsupported
			},
		}
		c := driver.Claim{Key: "key", ID: "a", TTL: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		busy, err := s.TryAcquire(ctx, c)
		require.NoError(t, err)
		require.Equal(t, driver.Answer{State: driver.Busy, Left: time.Second, Label: "web-2"}, busy)
		done, err := s.TryAcquire(ctx, c)
		require.NoError(t, err)
		require.Equal(t, "record", string(done.Record))
		_, hung := s.TryAcquire(ctx, c)
		require.ErrorContains(t, hung, `scripted: acquire "key": timeout`)
		_, failed := s.Renew(ctx, c)
		require.ErrorContains(t, failed, `scripted: renew "key": oom`)
		require.NotContains(t, failure.Error(), "renew", "the script's own error must not change")
		after := driver.After{Keep: time.Hour, Done: true}
		_, other := s.Release(ctx, c, after)
		require.Equal(t, errors.ErrUnsupported, other)

		calls := s.Calls()
		require.Len(t, calls, 5)
		require.Equal(t, guardtest.Call{
			Op: driver.OpAcquire, N: 3, Claim: c, Start: calls[0].Start, Took: time.Second, Answered: true, Err: hung,
		}, calls[2])
		require.Equal(t, busy, calls[0].Grant)
		require.Equal(t, failed, calls[3].Err)
		require.Equal(t, after, calls[4].After)
	})
}

func TestScripted_recordsACallThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &guardtest.Scripted{OnRenew: func(ctx context.Context, _ int, _ driver.Claim) (bool, error) {
			return false, guardtest.Hang(ctx)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		var renewals sync.WaitGroup
		for range 3 {
			renewals.Go(func() { _, _ = s.Renew(ctx, driver.Claim{Key: "key"}) })
		}
		synctest.Wait()
		for i, c := range s.Calls() {
			require.Equal(t, i+1, c.N)
			require.False(t, c.Answered)
		}
		cancel()
		renewals.Wait()
		for _, c := range s.Calls() {
			require.True(t, c.Answered)
			require.ErrorIs(t, c.Err, guard.ErrStore)
		}
	})
}
