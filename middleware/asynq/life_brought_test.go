package guardasynq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// asynq would run any task again on request, even one that has ended.
func TestSerial_theEndOfARunLeavesAloneWhatIsNoLongerPostponed(t *testing.T) {
	t.Parallel()
	run := func(end error) func(*testing.T, *lifeSite) {
		return func(t *testing.T, s *lifeSite) {
			work := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return end })
			elsewhere := s.serve(t, work, func(c *asynq.Config) {
				c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
			})
			require.NoError(t, s.inspector.RunTask("default", "second"))
			lifeUntil(t, "it has run", func() bool {
				state := s.info(t, "second").State
				return state != asynq.TaskStatePending && state != asynq.TaskStateActive
			})
			elsewhere.Shutdown()
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *lifeSite)
		state  asynq.TaskState
	}{
		"archived":  {func(t *testing.T, s *lifeSite) { require.NoError(t, s.inspector.ArchiveTask("default", "second")) }, asynq.TaskStateArchived},
		"completed": {run(nil), asynq.TaskStateCompleted},
		"failed":    {run(errors.New("fails")), asynq.TaskStateRetry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			var book lifeBook
			h, gate := lifeGated(t, &book)
			m := s.middleware(t, guardasynq.WithDelay(10*time.Minute))
			first := s.serve(t, m(h))
			s.enqueue(t, "first", "one")
			book.awaitRuns(t, "one", 1)
			s.enqueue(t, "second", "one", asynq.Retention(time.Hour))
			s.enqueue(t, "third", "one")
			lifeUntil(t, "two wait", func() bool { return len(s.seen.of(resultPostponed)) == 2 })
			lifeUntil(t, "asynq has put them aside", func() bool { return s.active(t) == 1 })
			first.Stop() // what changes now must not run here
			c.change(t, s)
			require.Equal(t, c.state, s.info(t, "second").State)
			s.serve(t, m(h))
			close(gate)
			book.awaitRuns(t, "one", 2)
			begun, _ := book.runs("one")
			require.Equal(t, "third", begun[1].task, "the next one runs")
			lifeUntil(t, "it is done", func() bool { return s.active(t) == 0 })
			require.Equal(t, c.state, s.info(t, "second").State)
			begun, _ = book.runs("one")
			require.Len(t, begun, 2)
		})
	}
}
