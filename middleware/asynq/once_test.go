package guardasynq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// aqOnce serves a handler whose runs are done by work, one key for all tasks of a type, and work
// is done once in the window.
func aqOnce(t *testing.T, window time.Duration, work func(ctx context.Context, task *asynq.Task) error) (*aqSite, *aqWork) {
	t.Helper()
	s, w := newAqSite(t), newAqWork(t)
	w.release() // its runs last as long as work
	m := s.middleware(t, nil, guardasynq.WithOnce(window, guardasynq.FromType()))
	s.serve(t, aqConfig(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}), m(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if err := w.ProcessTask(ctx, task); err != nil {
			return err
		}
		return work(ctx, task)
	})))
	return s, w
}

// retained enqueues a task and returns what asynq keeps of it when it has ended well.
func (s *aqSite) retained(t *testing.T, payload string) *asynq.TaskInfo {
	t.Helper()
	return s.awaitState(t, s.enqueue(t, "import", payload, asynq.Retention(time.Hour)).ID, asynq.TaskStateCompleted)
}

func TestOnce_repeatsGetTheFirstOnesResult(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("large result "), 80_000) // less than guard.MaxRecord
	write := func(result []byte) func(context.Context, *asynq.Task) error {
		return func(_ context.Context, task *asynq.Task) error {
			_, err := task.ResultWriter().Write(result)
			return err
		}
	}
	record := func(text string) func(context.Context, *asynq.Task) error {
		return func(ctx context.Context, _ *asynq.Task) error {
			lease, _ := guard.FromContext(ctx)
			return lease.SetRecord([]byte(text))
		}
	}
	for name, c := range map[string]struct {
		work  func(context.Context, *asynq.Task) error
		first []byte
		then  []byte
	}{
		"a result":              {write([]byte("42\x00")), []byte("42\x00"), []byte("42\x00")},
		"a large one":           {write(large), large, large},
		"an empty one":          {write(nil), nil, nil},
		"none":                  {func(context.Context, *asynq.Task) error { return nil }, nil, nil},
		"a record of the lease": {record("of the handler"), nil, []byte("of the handler")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w := aqOnce(t, time.Hour, c.work)
			require.Equal(t, c.first, s.retained(t, "1").Result)
			for _, payload := range []string{"2", "3"} {
				require.True(t, bytes.Equal(c.then, s.retained(t, payload).Result), "the result of the repeat")
			}
			require.Equal(t, []string{"1"}, w.payloads())
			for _, o := range s.outcomes.await(t, resultDone, 2) {
				require.NoError(t, o.Err)
				require.Zero(t, o.Fence)
			}
		})
	}
}

func TestOnce_aRunThatFailsIsNotDone(t *testing.T) {
	t.Parallel()
	fails := make(chan error, 2)
	s, w := aqOnce(t, time.Hour, func(_ context.Context, task *asynq.Task) error {
		_, _ = task.ResultWriter().Write([]byte("of " + string(task.Payload())))
		return <-fails
	})
	fails <- errors.New("of the handler")
	s.enqueue(t, "import", "1", asynq.TaskID("1"), asynq.MaxRetry(0))
	require.Equal(t, "of the handler", s.awaitState(t, "1", asynq.TaskStateArchived).LastErr)
	fails <- nil
	require.Equal(t, "of 2", string(s.retained(t, "2").Result))
	require.Equal(t, "of 2", string(s.retained(t, "3").Result))
	require.Equal(t, []string{"1", "2"}, w.payloads())
}

func TestOnce_aRunWhoseLeaseWasLostIsNotDone(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, nil, guardasynq.WithOnce(time.Hour, guardasynq.FromType()), guardasynq.WithLease(guard.WithTTL(3*time.Second)))
	s.serve(t, aqConfig(), m(w))
	t.Cleanup(w.release)
	s.enqueue(t, "import", "1", asynq.TaskID("1"))
	run := w.next(t)
	require.Eventually(t, func() bool { // an operator empties the store, but for asynq's
		keys, err := s.rdb.Keys(t.Context(), "*"+aqStored(t, run)+"*").Result()
		if err == nil && len(keys) > 0 {
			err = s.rdb.Del(t.Context(), keys...).Err()
		}
		return err == nil && errors.Is(context.Cause(run.ctx), guard.ErrLost)
	}, aqSoon, aqPoll)
	run.returns(nil)
	outcome := s.outcomes.await(t, resultRan, 1)[0]
	require.ErrorIs(t, outcome.Err, guard.ErrLost)
	s.awaitGone(t, "1") // it is done for asynq
	s.enqueue(t, "import", "2")
	w.next(t).returns(nil)
}

func TestOnce_runsAgainAfterTheWindow(t *testing.T) {
	t.Parallel()
	s, w := aqOnce(t, 500*time.Millisecond, func(context.Context, *asynq.Task) error { return nil })
	s.retained(t, "first")
	require.Eventually(t, func() bool {
		s.retained(t, "again")
		return len(w.payloads()) == 2
	}, aqSoon, aqPoll)
}

func TestLong_onceAResultThatIsTooLargeToKeepIsReported(t *testing.T) {
	redistest.Long(t)
	s, _ := aqOnce(t, time.Hour, func(_ context.Context, task *asynq.Task) error {
		_, err := task.ResultWriter().Write(make([]byte, guard.MaxRecord+1))
		return err
	})
	require.Len(t, s.retained(t, "1").Result, guard.MaxRecord+1)
	require.ErrorContains(t, s.outcomes.await(t, resultRan, 1)[0].Refused, "the result cannot be kept")
	require.Empty(t, s.retained(t, "2").Result)
	s.outcomes.await(t, resultDone, 1)
}

// A task that was made here has no ResultWriter.
func TestOnce_aHandlerAroundMayPutAnotherTaskInPlace(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, nil, guardasynq.WithOnce(time.Hour, guardasynq.FromType()))
	inner := m(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		lease, _ := guard.FromContext(ctx)
		return errors.Join(w.ProcessTask(ctx, task), lease.SetRecord([]byte("a record")))
	}))
	w.release()
	s.serve(t, aqConfig(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return inner.ProcessTask(ctx, asynq.NewTask(task.Type(), []byte("decrypted")))
	}))
	s.retained(t, "1")
	require.Empty(t, s.retained(t, "2").Result)
	require.Equal(t, []string{"decrypted"}, w.payloads())
	s.outcomes.await(t, resultDone, 1)
}

// Tasks of one key wait for its run. When they are brought back, their key is done.
func TestOnce_whatWasPostponedMeanwhileIsDone(t *testing.T) {
	t.Parallel()
	s, w, run := aqHolding(t, aqConfig(), guardasynq.WithOnce(time.Hour, guardasynq.FromJSON("key")))
	for i, attempts := range []int{0, 3} {
		s.enqueue(t, "import", aqJSON("k", fmt.Sprint(i)), asynq.MaxRetry(attempts))
	}
	s.outcomes.await(t, resultPostponed, 2)
	run.returns(nil)
	s.outcomes.await(t, resultDone, 2)
	s.awaitEmpty(t)
	require.Len(t, w.payloads(), 1)
}
