package guardasynq_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// asynq archives a task on its last attempt before it asks IsFailure.
func TestMaxRetry_zeroLosesNothingToABusyKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retries int
		start   func(s *lifeSite, t *testing.T, h asynq.Handler)
	}{
		"configured":   {0, func(s *lifeSite, t *testing.T, h asynq.Handler) { s.serve(t, h) }},
		"unconfigured": {0, func(s *lifeSite, t *testing.T, h asynq.Handler) { s.start(t, h) }},
		// what is not the last attempt would be counted as one
		"unconfigured, one retry": {1, func(s *lifeSite, t *testing.T, h asynq.Handler) { s.start(t, h) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const tasks = 50
			s := newLifeSite(t)
			var ids []string
			for i := range tasks {
				ids = append(ids, fmt.Sprint("task ", i))
				s.enqueue(t, ids[i], "one", asynq.MaxRetry(c.retries))
			}
			var book lifeBook
			h := s.middleware(t)(book.keep(func(context.Context, *asynq.Task) error {
				time.Sleep(2 * time.Millisecond) // the work
				return nil
			}))
			for range 2 {
				c.start(s, t, h)
			}
			require.Zero(t, s.awaitEmpty(t))
			book.requireOnce(t, ids)
			require.Equal(t, 1, book.together())
			require.NotEmpty(t, s.seen.of(resultPostponed), "there was contention")
			require.Len(t, s.seen.of(resultRan), tasks)
			for _, o := range s.seen.of(resultPostponed) {
				require.NotEmpty(t, o.Copy)
			}
		})
	}
}

func TestMaxRetry_aBusyKeyOnTheLastOfSomeAttemptsCostsNone(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]error{"which is done": nil, "which fails, too": errors.New("again")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			blocking, gate := make(chan struct{}), make(chan struct{})
			var attempts atomic.Int64
			h := s.middleware(t)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				if guardasynq.TaskID(ctx, task) == "blocker" {
					close(blocking)
					select {
					case <-gate:
					case <-t.Context().Done():
					}
					return nil
				}
				switch attempts.Add(1) {
				case 1, 2:
					return errors.New("fails")
				case 3:
					// the blocker waits for the end of this attempt, and the next one comes a
					// second later
					s.enqueue(t, "blocker", "one")
					s.seen.await(t, resultPostponed)
					return errors.New("fails")
				default:
					return last
				}
			}))
			s.serve(t, h, func(c *asynq.Config) {
				c.RetryDelayFunc = func(n int, _ error, _ *asynq.Task) time.Duration {
					if n == 2 {
						return 2 * time.Second
					}
					return 10 * time.Millisecond
				}
			})
			s.enqueue(t, "task", "one", asynq.MaxRetry(3))
			lifeReceive(t, blocking, "the blocker")
			lifeUntil(t, "the last attempt meets the blocker", func() bool {
				for _, o := range s.seen.of(resultPostponed) {
					if o.Copy == "task~1" {
						return true
					}
				}
				return false
			})
			require.EqualValues(t, 3, attempts.Load())
			close(gate)
			archived := s.awaitEmpty(t)
			require.EqualValues(t, 4, attempts.Load())
			if last == nil {
				require.Zero(t, archived)
				return
			}
			require.Equal(t, 1, archived, "its attempts are used up, by failures of its own")
			require.Nil(t, s.info(t, "task"))
			archivedTasks, err := s.inspector.ListArchivedTasks("default")
			require.NoError(t, err)
			require.Equal(t, "again", archivedTasks[0].LastErr)
			require.Contains(t, archivedTasks[0].ID, "task~")
		})
	}
}

func TestMaxRetry_aBusyKeyCostsNoAttempt(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	var book lifeBook
	gated, gate := lifeGated(t, &book)
	attempts := make(chan int, 10)
	change, reported := lifeErrors()
	s.serve(t, s.middleware(t, guardasynq.WithDelay(50*time.Millisecond))(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		if id == "first" {
			return gated.ProcessTask(ctx, task)
		}
		retried, _ := asynq.GetRetryCount(ctx)
		attempts <- retried
		if retried < 2 {
			return fmt.Errorf("fails for the %d. time", retried+1)
		}
		return nil
	})), change)
	s.enqueue(t, "first", "one")
	book.awaitRuns(t, "one", 1)
	s.enqueue(t, "second", "one", asynq.MaxRetry(2))
	lifeUntil(t, "it is postponed more often than it has attempts", func() bool { return len(s.seen.of(resultPostponed)) > 3 })
	require.Empty(t, attempts)
	close(gate)
	require.Zero(t, s.awaitEmpty(t))
	close(attempts)
	var all []int
	for n := range attempts {
		all = append(all, n)
	}
	require.Equal(t, []int{0, 1, 2}, all)
	for n := range 2 {
		require.ErrorContains(t, lifeReceive(t, reported, "an error"), fmt.Sprintf("fails for the %d. time", n+1))
	}
	require.Empty(t, reported, "that the key is busy is no error")
	q, err := s.inspector.GetQueueInfo("default")
	require.NoError(t, err)
	require.Equal(t, 2, q.FailedTotal)
	for _, o := range s.seen.of(resultPostponed) {
		require.Empty(t, o.Copy, "it comes back as what it is")
	}
}
