package guardasynq_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

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
					// the blocker waits for the end of this attempt
					s.enqueue(t, "blocker", "one")
					s.seen.await(t, resultPostponed, 1)
					return errors.New("fails")
				default:
					return last
				}
			}))
			s.serve(t, h, func(c *asynq.Config) {
				c.RetryDelayFunc = func(n int, _ error, _ *asynq.Task) time.Duration {
					if n == 2 {
						return time.Hour // until the blocker runs
					}
					return 10 * time.Millisecond
				}
			})
			s.enqueue(t, "task", "one", asynq.MaxRetry(3))
			lifeReceive(t, blocking, "the blocker")
			s.awaitState(t, "task", asynq.TaskStateRetry)
			require.NoError(t, s.inspector.RunTask(aqQueue, "task"))
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
