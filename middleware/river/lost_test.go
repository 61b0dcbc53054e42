package guardriver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

var errCut = errors.New("connection refused")

// While the store is unavailable, no job runs, and none loses an attempt, with every policy.
func TestOutage_jobsAreSnoozed(t *testing.T) {
	t.Parallel()
	for _, policy := range []guardriver.BusyPolicy{guardriver.Requeue, guardriver.Skip, guardriver.Fail} {
		synctest.Test(t, func(t *testing.T) {
			s := newStand(t)
			m := s.middleware(t, byCustomer, guardriver.WithBusy(policy), guardriver.WithOnce(time.Hour, guardriver.FromJobID()))
			s.cutOff(errCut)
			err := m.Work(t.Context(), charge(1, "42"), mustNotRun(t))
			require.GreaterOrEqual(t, snoozed(t, err), 5*time.Second)
			require.ErrorIs(t, err, guard.ErrStore)
			s.cutOff(nil)
			require.NoError(t, m.Work(t.Context(), charge(1, "42"), returns(nil)))
			require.Equal(t, []string{"unavailable", "ran"}, s.results())
		})
	}
}

// An outage ends a run. What becomes of the job depends on what its worker returns.
func TestLost_inAnOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worker func(ctx context.Context) error
		result string
		snooze bool
	}{
		"its context's error": {func(ctx context.Context) error { return fmt.Errorf("charge: %w", ctx.Err()) }, "unavailable", true},
		"the cause":           {context.Cause, "unavailable", true},
		"nothing":             {func(context.Context) error { return nil }, "ran", false},
		"its own error":       {returns(errWorker), "ran", false},
		"both":                {func(ctx context.Context) error { return errors.Join(errWorker, ctx.Err()) }, "ran", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStand(t)
				m := s.middleware(t, byCustomer, guardriver.WithOnce(time.Hour, guardriver.FromJobID()))
				err := m.Work(t.Context(), charge(1, "42"), func(ctx context.Context) error {
					s.cutOff(errCut)
					<-ctx.Done()
					require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
					return c.worker(ctx)
				})
				require.ErrorIs(t, err, guard.ErrLost)
				require.Equal(t, c.snooze, errors.Is(err, &rivertype.JobSnoozeError{}))
				s.cutOff(nil)
				time.Sleep(time.Minute)
				require.NoError(t, m.Work(t.Context(), charge(1, "42"), returns(nil)), "neither busy nor done")
				require.Equal(t, []string{c.result, "ran"}, s.results())
			})
		})
	}
}

// A worker that hangs is no outage, and costs an attempt. Its key is free.
func TestLost_byMaxHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		m := s.middleware(t, byCustomer, guardriver.WithLease(guard.WithMaxHold(time.Minute)))
		err := m.Work(t.Context(), charge(1, "42"), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, guard.ErrLost)
		require.NotErrorIs(t, err, &rivertype.JobSnoozeError{})
		require.NoError(t, m.Work(t.Context(), charge(2, "42"), returns(nil)))
	})
}

// River's timeout ends the context of the worker. The lease lasts until the worker has returned.
func TestTimeout_theKeyStaysBusyUntilTheWorkerReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		m := s.middleware(t, byCustomer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.Work(ctx, charge(1, "42"), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Hour) // deaf
			snoozed(t, m.Work(t.Context(), charge(2, "42"), mustNotRun(t)))
			return ctx.Err()
		}), context.DeadlineExceeded)
		require.NoError(t, m.Work(t.Context(), charge(2, "42"), returns(nil)))
	})
}

// A Guard that was closed too early loses no job.
func TestClosed_jobsAreSnoozed(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, byCustomer)
	require.NoError(t, s.Close(t.Context()))
	err := m.Work(t.Context(), charge(1, "42"), mustNotRun(t))
	require.ErrorIs(t, err, guard.ErrClosed)
	snoozed(t, err)
	require.Equal(t, []string{"unavailable"}, s.results())
}

// A Guard that is closed while a job runs costs no attempt, unless the worker itself has failed.
func TestClosed_aRunIsSnoozed(t *testing.T) {
	t.Parallel()
	own := errors.New("failed")
	for name, c := range map[string]struct {
		returns func(context.Context) error
		snoozed bool
	}{
		"its context": {context.Context.Err, true},
		"its cause":   {context.Cause, true},
		"its own":     {func(context.Context) error { return own }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStand(t)
				err := s.middleware(t, byCustomer).Work(t.Context(), charge(1, "42"), func(ctx context.Context) error {
					go func() {
						closing, cancel := context.WithTimeout(context.Background(), time.Second)
						defer cancel()
						_ = s.Close(closing)
					}()
					<-ctx.Done()
					return c.returns(ctx)
				})
				var snooze *rivertype.JobSnoozeError
				require.Equal(t, c.snoozed, errors.As(err, &snooze), "%v", err)
				require.ErrorIs(t, err, guard.ErrClosed)
			})
		})
	}
}
