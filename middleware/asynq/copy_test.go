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

// aqHolding serves w behind a middleware with the key in the payload, and has a run hold the key
// "k".
func aqHolding(t *testing.T, config asynq.Config, opts ...guardasynq.Option) (*aqSite, *aqWork, *aqRun) {
	t.Helper()
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, guardasynq.FromJSON("key"), append([]guardasynq.Option{guardasynq.WithDelay(10 * time.Minute)}, opts...)...)
	s.serve(t, config, m(w))
	t.Cleanup(w.release)
	s.enqueue(t, "import", aqJSON("k", "holder"), asynq.TaskID("holder"))
	return s, w, w.next(t)
}

func TestCopy_carriesAllThatTheTaskDid(t *testing.T) {
	t.Parallel()
	s, w, holder := aqHolding(t, aqConfig(func(c *asynq.Config) { c.Queues = map[string]int{"default": 1, "critical": 2} }))
	deadline := time.Now().Add(time.Hour).Truncate(time.Second)
	task := asynq.NewTaskWithHeaders("import", []byte(aqJSON("k", "1")), map[string]string{"Tenant": "17"})
	s.enqueueTask(t, task, asynq.TaskID("41"), asynq.Queue("critical"), asynq.MaxRetry(0), asynq.Timeout(7*time.Minute), asynq.Deadline(deadline),
		asynq.Retention(time.Hour), asynq.Group("group"))
	// asynq delivers a single task of a group only if RunTask is called
	require.NoError(t, s.inspector.RunTask("critical", "41"))
	outcome := s.outcomes.await(t, resultPostponed, 1)[0]
	require.Equal(t, "41~1", outcome.Copy)

	info, err := s.inspector.GetTaskInfo("critical", "41~1")
	require.NoError(t, err)
	require.Equal(t, asynq.TaskStateScheduled, info.State)
	require.WithinDuration(t, time.Now().Add(outcome.After), info.NextProcessAt, 10*time.Second)
	require.Equal(t, "import", info.Type)
	require.Equal(t, aqJSON("k", "1"), string(info.Payload))
	require.Equal(t, map[string]string{"Tenant": "17", "Onerun-Task-Id": "41"}, info.Headers)
	require.Zero(t, info.MaxRetry)
	require.Zero(t, info.Retried)
	require.Equal(t, 7*time.Minute, info.Timeout)
	require.Equal(t, deadline, info.Deadline)
	require.Equal(t, time.Hour, info.Retention)
	require.Equal(t, "group", info.Group)
	// although it has a Retention, it is not shown as completed: the copy will be
	require.Eventually(t, func() bool {
		_, err := s.inspector.GetTaskInfo("critical", "41")
		return errors.Is(err, asynq.ErrTaskNotFound)
	}, aqSoon, aqPoll)

	holder.returns(nil)
	run := w.next(t)
	require.Equal(t, "41~1", run.id)
	require.Equal(t, "41", run.taskID)
	require.Equal(t, map[string]string{"Tenant": "17"}, task.Headers(), "the task's own are left alone")
	run.returns(nil)
	require.Eventually(t, func() bool {
		info, err := s.inspector.GetTaskInfo("critical", "41~1")
		return err == nil && info.State == asynq.TaskStateCompleted
	}, aqSoon, aqPoll)
}

func TestCopy_ofACopyIsNumberedOn(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"41", "report", "report~", "a~7", ""} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			s, w, holder := aqHolding(t, aqConfig())
			opts := []asynq.Option{asynq.MaxRetry(0)}
			if id != "" {
				opts = append(opts, asynq.TaskID(id))
			}
			id := s.enqueue(t, "import", aqJSON("k", "1"), opts...).ID
			for _, copied := range []string{id + "~1", id + "~2", id + "~3"} {
				s.awaitState(t, copied, asynq.TaskStateScheduled)
				if copied != id+"~3" {
					require.NoError(t, s.inspector.RunTask(aqQueue, copied))
					s.awaitGone(t, copied)
				}
			}
			holder.returns(nil)
			run := w.next(t)
			require.Equal(t, id+"~3", run.id)
			require.Equal(t, id, run.taskID)
			run.returns(errors.New("of the handler"))
			require.Equal(t, "of the handler", s.awaitState(t, id+"~3", asynq.TaskStateArchived).LastErr, "it was the last attempt all the time")
		})
	}
}

func TestCopy_hasTheAttemptsThatAreLeft(t *testing.T) {
	t.Parallel()
	s, w, holder := aqHolding(t, aqPlainConfig(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	}))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("fresh"), asynq.MaxRetry(7))
	require.Equal(t, 7, s.awaitState(t, "fresh~1", asynq.TaskStateScheduled).MaxRetry)

	s.enqueue(t, "import", aqJSON("free", "1"), asynq.TaskID("failed"), asynq.MaxRetry(7))
	w.next(t).returns(errors.New("of the handler"))
	s.awaitState(t, "failed", asynq.TaskStateRetry)
	s.enqueue(t, "import", aqJSON("free", "2"))
	blocker := w.next(t)
	require.NoError(t, s.inspector.RunTask(aqQueue, "failed"))
	copied := s.awaitState(t, "failed~1", asynq.TaskStateScheduled)
	require.Equal(t, 6, copied.MaxRetry)
	require.Zero(t, copied.Retried)
	blocker.returns(nil)
	holder.returns(nil)
}

func TestCopy_findsItsIDTaken(t *testing.T) {
	t.Parallel()
	payload := aqJSON("k", "1")
	for name, c := range map[string]struct {
		typename, payload string
		archived          bool
		completed         bool
		same              bool
	}{
		"by one in the archive":     {typename: "import", payload: payload, archived: true},
		"by one that is completed":  {typename: "import", payload: aqJSON("other", "1"), completed: true},
		"by one of another type":    {typename: "export", payload: payload},
		"by one of another payload": {typename: "import", payload: aqJSON("k", "2")},
		"by itself":                 {typename: "import", payload: payload, same: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w, holder := aqHolding(t, aqConfig())
			s.enqueue(t, c.typename, c.payload, asynq.TaskID("41~1"), asynq.ProcessIn(time.Hour), asynq.Retention(time.Hour))
			if c.completed {
				require.NoError(t, s.inspector.RunTask(aqQueue, "41~1"))
				w.next(t).returns(nil)
				s.awaitState(t, "41~1", asynq.TaskStateCompleted)
			}
			if c.archived {
				require.NoError(t, s.inspector.ArchiveTask(aqQueue, "41~1"))
			}
			s.enqueue(t, "import", payload, asynq.TaskID("41"), asynq.MaxRetry(0))
			copied := s.outcomes.await(t, resultPostponed, 1)[0].Copy
			s.awaitGone(t, "41")
			if c.same {
				require.Equal(t, "41~1", copied)
			} else {
				require.Regexp(t, `^41~[A-Z2-7]{8}$`, copied)
				require.Equal(t, payload, string(s.info(t, copied).Payload))
			}
			other := s.info(t, "41~1")
			require.Equal(t, c.typename, other.Type)
			require.Equal(t, c.payload, string(other.Payload))
			holder.returns(nil)
			run := w.next(t)
			require.Equal(t, copied, run.id)
			if !c.same {
				require.Equal(t, "41", run.taskID)
			}
			run.returns(nil)
		})
	}
}

// The ID of a task is free again when a copy is in its place, so the next one under that ID is
// another task, and both have to run.
func TestCopy_isNotTakenForThatOfALaterTask(t *testing.T) {
	t.Parallel()
	s, w, holder := aqHolding(t, aqConfig())
	s.enqueue(t, "import", aqJSON("k", "monday"), asynq.TaskID("report"), asynq.MaxRetry(0))
	s.awaitState(t, "report~1", asynq.TaskStateScheduled)
	s.awaitGone(t, "report")
	s.enqueue(t, "import", aqJSON("k", "tuesday"), asynq.TaskID("report"), asynq.MaxRetry(0))
	s.outcomes.await(t, resultPostponed, 2)
	s.awaitGone(t, "report")
	holder.returns(nil)
	for range 2 {
		w.next(t).returns(nil)
	}
	s.awaitEmpty(t)
	require.ElementsMatch(t, []string{aqJSON("k", "holder"), aqJSON("k", "monday"), aqJSON("k", "tuesday")}, w.payloads())
}

func TestCopy_doesNotMeetTheRunThatItsOriginalHasLeft(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	timeout := newLifeTimeout()
	m := s.middleware(t, guardasynq.FromTaskID(), guardasynq.WithDelay(10*time.Minute))
	s.serve(t, aqConfig(timeout.config), m(w))
	t.Cleanup(w.release)
	s.enqueue(t, "import", "", asynq.TaskID("41"), asynq.MaxRetry(0))
	zombie := w.next(t)
	close(timeout.over)
	s.awaitState(t, "41", asynq.TaskStateArchived)
	<-zombie.ctx.Done()
	require.NoError(t, s.inspector.RunTask(aqQueue, "41")) // as an operator does
	s.awaitState(t, "41~1", asynq.TaskStateScheduled)
	w.none(t)
	zombie.returns(nil)
	run := w.next(t) // that w.met remains empty is what this is about
	require.Equal(t, "41~1", run.id)
	require.Equal(t, "41", run.taskID)
	run.returns(nil)
	s.awaitEmpty(t)
}

// What holds the lock of asynq.Unique is the ID of the task, so that of the original ends with it.
func TestCopy_hasNoLockOfAsynqUnique(t *testing.T) {
	t.Parallel()
	s, w, holder := aqHolding(t, aqConfig())
	unique := asynq.NewTask("import", []byte(aqJSON("k", "1")), asynq.Unique(time.Hour), asynq.MaxRetry(0))
	s.enqueueTask(t, unique, asynq.TaskID("41"))
	s.awaitState(t, "41~1", asynq.TaskStateScheduled)
	s.awaitGone(t, "41")
	require.NoError(t, s.inspector.PauseQueue(aqQueue))
	s.enqueueTask(t, unique, asynq.TaskID("42"))
	_, err := s.client.Enqueue(unique, asynq.TaskID("43"))
	require.ErrorIs(t, err, asynq.ErrDuplicateTask)
	require.NoError(t, s.inspector.UnpauseQueue(aqQueue))
	holder.returns(nil)
	w.release()
	s.awaitEmpty(t)
}

func TestCopy_isNotMadeOfWhatAsynqHasGivenUp(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	given := make(chan struct{})
	m := s.middleware(t, func(_ context.Context, task *asynq.Task) (string, error) {
		if string(task.Payload()) == "late" {
			<-given
		}
		return "k", nil
	})(w)
	s.serve(t, aqConfig(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return m.ProcessTask(context.WithoutCancel(ctx), task)
	}))
	t.Cleanup(w.release)
	s.enqueue(t, "import", "holder")
	w.next(t)
	s.enqueue(t, "import", "late", asynq.TaskID("41"), asynq.MaxRetry(0), asynq.Timeout(time.Second))
	s.awaitState(t, "41", asynq.TaskStateArchived)
	close(given)
	outcome := s.outcomes.await(t, resultCanceled, 1)[0]
	require.Empty(t, outcome.Copy)
	require.ErrorContains(t, outcome.Err, "asynq has given the task up")
	require.Nil(t, s.info(t, "41~1"))
	require.NotNil(t, s.info(t, "41"))
}
