package guardasynq_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// Tasks with one key that are with the workers of two servers.
func TestWithLease_withFairRunsTasksInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	var book lifeBook
	gate := make(chan struct{})
	h := book.keep(func(context.Context, *asynq.Task) error {
		select {
		case <-gate:
		case <-t.Context().Done():
		}
		return nil
	})
	var waits atomic.Int64
	waiting := guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { waits.Add(1) }})
	for range 2 {
		s.guard = lifeGuard(t, s.store) // one for each server
		s.serve(t, s.middleware(t, guardasynq.WithWait(time.Minute), guardasynq.WithBusy(guardasynq.Fail),
			guardasynq.WithLease(guard.WithFair(), guard.WithTTL(time.Minute), waiting))(h))
	}
	const tasks = 6
	s.enqueue(t, "task 1", "one")
	book.awaitRuns(t, "one", 1)
	for i := 2; i <= tasks; i++ {
		s.enqueue(t, fmt.Sprint("task ", i), "one")
		lifeUntil(t, "it waits", func() bool { return waits.Load() == int64(i-1) })
	}
	close(gate)
	require.Zero(t, s.awaitEmpty(t))
	begun, _ := book.runs("one")
	require.Len(t, begun, tasks)
	for i, run := range begun {
		require.Equal(t, fmt.Sprint("task ", i+1), run.task)
	}
	require.Empty(t, s.seen.of(resultBusy))
}
