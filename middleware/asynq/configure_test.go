package guardasynq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// An aqErrors is an ErrorHandler that keeps the errors that it receives.
type aqErrors struct {
	mu  sync.Mutex
	ids []string // of tasks
	err []error
}

func (e *aqErrors) HandleError(ctx context.Context, _ *asynq.Task, err error) {
	id, _ := asynq.GetTaskID(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids, e.err = append(e.ids, id), append(e.err, err)
}

func (e *aqErrors) all() ([]string, []error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.ids...), append([]error(nil), e.err...)
}

var (
	errAqBusy  error = &guardasynq.PostponedError{After: 7 * time.Second, Err: &guard.BusyError{Key: "k"}}
	errAqStore error = &guardasynq.PostponedError{After: 8 * time.Second, Err: &guard.StoreError{}}
	errAqOther       = errors.New("of the handler")
)

func TestConfigure_wrapsWhatTheConfigHas(t *testing.T) {
	t.Parallel()
	type baseKey struct{}
	task, ctx := asynq.NewTask("import", nil), context.WithValue(t.Context(), baseKey{}, "handler's")
	for times := 1; times <= 2; times++ {
		t.Run(fmt.Sprint("configured ", times, " times"), func(t *testing.T) {
			t.Parallel()
			var failures, delays, handled []string
			config := asynq.Config{
				Concurrency: 3,
				BaseContext: func() context.Context { return context.WithValue(context.Background(), baseKey{}, "base") },
				IsFailure: func(err error) bool {
					failures = append(failures, err.Error())
					return !errors.Is(err, context.Canceled)
				},
				RetryDelayFunc: func(n int, err error, given *asynq.Task) time.Duration {
					require.Same(t, task, given)
					delays = append(delays, fmt.Sprint(n, " ", err))
					return time.Minute
				},
				ErrorHandler: asynq.ErrorHandlerFunc(func(given context.Context, gotten *asynq.Task, err error) {
					require.Equal(t, ctx, given)
					require.Same(t, task, gotten)
					handled = append(handled, err.Error())
				}),
			}
			for range times {
				config = guardasynq.Configure(config)
			}
			require.Equal(t, 3, config.Concurrency)
			require.Equal(t, "base", config.BaseContext().Value(baseKey{}))

			require.True(t, config.IsFailure(errAqOther))
			require.False(t, config.IsFailure(context.Canceled))
			for _, err := range []error{errAqBusy, errAqStore, fmt.Errorf("around: %w", errAqBusy)} {
				require.False(t, config.IsFailure(err))
			}
			require.Equal(t, []string{errAqOther.Error(), context.Canceled.Error()}, failures)

			require.Equal(t, time.Minute, config.RetryDelayFunc(4, errAqOther, task))
			require.Equal(t, 7*time.Second, config.RetryDelayFunc(4, fmt.Errorf("around: %w", errAqBusy), task))
			require.Equal(t, 8*time.Second, config.RetryDelayFunc(4, errAqStore, task))
			require.Equal(t, []string{"4 of the handler"}, delays)

			for _, err := range []error{errAqOther, errAqBusy, fmt.Errorf("around: %w", errAqBusy), errAqStore} {
				config.ErrorHandler.HandleError(ctx, task, err)
			}
			require.Equal(t, []string{errAqOther.Error(), errAqStore.Error()}, handled)
		})
	}
}

func TestConfigure_ofAnEmptyConfigIsWhatAsynqDoes(t *testing.T) {
	t.Parallel()
	var config asynq.Config
	config = guardasynq.Configure(config)
	require.Nil(t, config.ErrorHandler)
	require.NoError(t, config.BaseContext().Err())
	require.True(t, config.IsFailure(errAqOther))
	require.False(t, config.IsFailure(errAqBusy))
	require.Equal(t, 7*time.Second, config.RetryDelayFunc(0, errAqBusy, nil))
	require.GreaterOrEqual(t, config.RetryDelayFunc(3, errAqOther, nil), 81*time.Second, "asynq's own delay grows with the fourth power")
}

// A task that is brought back waits for asynq's next look at the queue: nothing wakes it.
func TestConfigure_looksForTasksOftenUnlessTheConfigSays(t *testing.T) {
	t.Parallel()
	var c asynq.Config
	c = guardasynq.Configure(c)
	require.Equal(t, 20*time.Millisecond, c.TaskCheckInterval)
	require.Equal(t, time.Second, c.DelayedTaskCheckInterval)
	c = asynq.Config{TaskCheckInterval: time.Minute, DelayedTaskCheckInterval: time.Hour}
	c = guardasynq.Configure(c)
	require.Equal(t, time.Minute, c.TaskCheckInterval)
	require.Equal(t, time.Hour, c.DelayedTaskCheckInterval)
}

const aqNotConfigured = "the server's asynq.Config did not go through guardasynq.Configure"

func TestConfigure_aServerWithoutItIsReportedAndLosesNothing(t *testing.T) {
	t.Parallel()
	var reported aqErrors
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithDelay(10*time.Minute))
	s.serve(t, aqPlainConfig(func(c *asynq.Config) { c.ErrorHandler = &reported }), m(w))
	t.Cleanup(w.release)
	s.enqueue(t, "import", aqJSON("k", "0"))
	run := w.next(t)
	for _, id := range []string{"1", "2", "3"} {
		s.enqueue(t, "import", aqJSON("k", id), asynq.TaskID(id), asynq.MaxRetry(2))
		copied := s.awaitState(t, id+"~1", asynq.TaskStateScheduled)
		require.Equal(t, 2, copied.MaxRetry)
		require.Zero(t, copied.Retried)
		s.awaitGone(t, id)
	}
	ids, errs := reported.all()
	require.Equal(t, []string{"1", "2", "3"}, ids)
	for _, err := range errs {
		require.ErrorIs(t, err, guard.ErrBusy)
		require.ErrorIs(t, err, asynq.RevokeTask)
		require.ErrorContains(t, err, aqNotConfigured)
	}
	for _, o := range s.outcomes.of(resultPostponed) {
		require.NotEmpty(t, o.Copy)
		require.ErrorContains(t, o.Refused, aqNotConfigured)
	}
	for _, id := range []string{"1", "2", "3"} {
		run.returns(nil)
		run = w.next(t)
		require.Equal(t, aqJSON("k", id), run.payload)
	}
	run.returns(nil)
	s.awaitEmpty(t)
	q, err := s.inspector.GetQueueInfo(aqQueue)
	require.NoError(t, err)
	require.Zero(t, q.FailedTotal)
	require.Zero(t, q.Archived)
}
