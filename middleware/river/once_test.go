package guardriver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

// A repeat does not run, with one lease and with two.
func TestOnce_keepsOutRepeats(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]guardriver.KeyFunc{"alone": nil, "with a key": byCustomer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			m := s.middleware(t, key, guardriver.WithOnce(time.Hour, guardriver.FromJobID()))
			require.ErrorIs(t, m.Work(t.Context(), charge(1, "42"), returns(errWorker)), errWorker)
			require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(ctx context.Context) error {
				require.NotZero(t, guard.Fence(ctx))
				return nil
			}))
			require.NoError(t, m.Work(t.Context(), charge(1, "42"), mustNotRun(t)))
			require.NoError(t, m.Work(t.Context(), charge(2, "42"), returns(nil)), "another job")
			require.Equal(t, []string{"ran", "ran", "done", "ran"}, s.results())
		})
	}
}

// While a job and its key are taken, a repeat of it comes back, whatever the policy: only later is
// it known whether the first one has succeeded.
func TestOnce_aRepeatDuringTheRunComesBack(t *testing.T) {
	t.Parallel()
	for _, policy := range []guardriver.BusyPolicy{guardriver.Requeue, guardriver.Skip, guardriver.Fail} {
		s := newStand(t)
		m := s.middleware(t, byCustomer, guardriver.WithOnce(time.Hour, guardriver.FromJobID()), guardriver.WithBusy(policy))
		require.ErrorIs(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
			snoozed(t, m.Work(t.Context(), charge(1, "42"), mustNotRun(t)))
			return errWorker
		}), errWorker)
		require.NoError(t, m.Work(t.Context(), charge(1, "42"), returns(nil)))
		require.Equal(t, []string{"postponed", "ran", "ran"}, s.results())
	}
}

// A job for which the function of WithOnce returns ErrUnguarded is no repeat, and has its key.
func TestOnce_unguarded(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, byCustomer, guardriver.WithOnce(time.Hour, guardriver.Optional(guardriver.FromMetadata("order"))))
	for range 2 {
		require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(ctx context.Context) error {
			require.NotZero(t, guard.Fence(ctx))
			return nil
		}))
	}
	job := charge(3, "42")
	job.Metadata = []byte(`{"order":7}`)
	require.NoError(t, m.Work(t.Context(), job, returns(nil)))
	require.NoError(t, m.Work(t.Context(), job, mustNotRun(t)))
	require.Equal(t, []string{"ran", "ran", "ran", "done"}, s.results())
}

// A worker that snoozes or cancels its job leaves no marker.
func TestOnce_onlySuccessLeavesAMarker(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, nil, guardriver.WithOnce(time.Hour, guardriver.FromArgs()))
	snooze := &guardriver.PostponedError{After: time.Minute, Reason: errors.New("too early")}
	require.Equal(t, time.Minute, snoozed(t, m.Work(t.Context(), charge(1, "42"), returns(snooze))))
	require.NoError(t, m.Work(t.Context(), charge(1, "42"), returns(nil)))
	require.Equal(t, []string{"postponed", "ran"}, s.results())
}

// Several jobs of a key may run at a time, and of them one of each repeat.
func TestOnce_withALimit(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, byCustomer, guardriver.WithOnce(time.Hour, guardriver.FromJobID()), guardriver.WithLease(guard.WithLimit(2)))
	require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
		snoozed(t, m.Work(t.Context(), charge(1, "42"), mustNotRun(t)))
		return m.Work(t.Context(), charge(2, "42"), returns(nil))
	}))
	require.Equal(t, []string{"postponed", "ran", "ran"}, s.results())
}

// The worker has returned nil, and the store can keep no marker. The job is done: River need not
// run it again, and hooks learn that a repeat could.
func TestOnce_aMissingMarkerFailsNoJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		m := s.middleware(t, nil, guardriver.WithOnce(time.Hour, guardriver.FromJobID()))
		require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
			s.cutOff(errCut)
			return nil
		}))
		require.ErrorIs(t, s.outcomes[0].Err, guard.ErrMarker)
		require.Equal(t, []string{"ran"}, s.results())
	})
}
