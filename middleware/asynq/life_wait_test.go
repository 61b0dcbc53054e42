package guardasynq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// lifeGated returns a handler that stays for the first time until the gate is open.
func lifeGated(t *testing.T, book *lifeBook) (asynq.Handler, chan struct{}) {
	gate := make(chan struct{})
	return book.keep(func(context.Context, *asynq.Task) error {
		if begun, _ := book.runs("one"); len(begun) > 1 {
			return nil
		}
		select {
		case <-gate:
		case <-t.Context().Done():
		}
		return nil
	}), gate
}

// active returns how many tasks are with workers.
func (s *lifeSite) active(t *testing.T) int {
	t.Helper()
	q, err := s.inspector.GetQueueInfo("default")
	require.NoError(t, err)
	return q.Active
}

func TestWait_theNextTaskWaitsInItsWorkerAndRunsRightAfter(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	var book lifeBook
	ends := make(chan struct{})
	h := book.keep(func(context.Context, *asynq.Task) error {
		select {
		case <-ends:
		case <-t.Context().Done():
		}
		return nil
	})
	s.serve(t, s.middleware(t, guardasynq.WithWait(time.Minute), guardasynq.WithDelay(10*time.Minute))(h))
	const tasks = 3
	s.enqueue(t, "task 1", "one")
	for i := 1; i <= tasks; i++ {
		book.awaitRuns(t, "one", i)
		if i < tasks {
			s.enqueue(t, fmt.Sprint("task ", i+1), "one")
			lifeUntil(t, "the next one is with a worker", func() bool { return s.active(t) == 2 })
			time.Sleep(200 * time.Millisecond) // a postponed one would have been put aside by now
			require.Equal(t, 2, s.active(t))
		}
		ends <- struct{}{}
	}
	require.Zero(t, s.awaitEmpty(t))
	require.Empty(t, s.seen.of(resultPostponed))
	require.Equal(t, 1, book.together())
	begun, _ := book.runs("one")
	for i := range tasks {
		require.Equal(t, fmt.Sprint("task ", i+1), begun[i].task)
	}
}
