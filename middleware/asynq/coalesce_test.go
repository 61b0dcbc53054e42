package guardasynq_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// aqCoalescing serves w behind a middleware that coalesces, one for each of n servers.
func aqCoalescing(t *testing.T, s *aqSite, n int, w *aqWork, opts ...guardasynq.Option) {
	t.Helper()
	for range n {
		m := s.middlewareOf(t, s.newGuard(t), guardasynq.FromJSON("key"), append(opts, guardasynq.WithBusy(guardasynq.Coalesce))...)
		s.serve(t, aqConfig(), m(w))
	}
	t.Cleanup(w.release) // before the servers shut down
}

// trigger enqueues a task and waits until it has found its key busy, and is coalesced.
func (s *aqSite) trigger(t *testing.T, rest string, opts ...asynq.Option) {
	t.Helper()
	before := len(s.outcomes.of(resultCoalesced))
	s.enqueue(t, "index", aqJSON("k", rest), opts...)
	s.outcomes.await(t, resultCoalesced, before+1)
}

func TestCoalesce_aBurstLeadsToOneMoreRunOfTheNewest(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	aqCoalescing(t, s, 2, w)
	s.enqueue(t, "index", aqJSON("k", "begin"))
	run := w.next(t)
	for burst := range 3 {
		before := len(s.outcomes.of(resultCoalesced))
		for i := range 20 {
			s.enqueue(t, "index", aqJSON("k", fmt.Sprint(burst, " ", i)))
		}
		s.outcomes.await(t, resultCoalesced, before+20)
		// those before may have come to two workers at the same moment
		s.trigger(t, fmt.Sprint("last of ", burst))
		run.returns(nil)
		run = w.next(t)
		require.Equal(t, aqJSON("k", fmt.Sprint("last of ", burst)), run.payload)
	}
	run.returns(nil)
	s.awaitEmpty(t)
	w.none(t)
	require.Len(t, w.payloads(), 4)
}

// The follow-up is with asynq, ready to be run, while no worker is free for it.
func TestCoalesce_aTriggerReplacesAPendingFollowUp(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	aqCoalescing(t, s, 1, w)
	s.enqueue(t, "index", aqJSON("k", "0"))
	run := w.next(t)
	s.trigger(t, "1")
	require.NoError(t, s.inspector.PauseQueue(aqQueue))
	run.returns(nil)
	require.Eventually(t, func() bool {
		q, err := s.inspector.GetQueueInfo(aqQueue)
		return err == nil && q.Pending == 1 && q.Active == 0
	}, aqSoon, aqPoll)
	s.enqueue(t, "index", aqJSON("k", "2"))
	require.NoError(t, s.inspector.UnpauseQueue(aqQueue))
	for { // both may run, but the newest is the last
		run := w.next(t)
		run.returns(nil)
		if run.payload == aqJSON("k", "2") {
			break
		}
	}
	s.awaitEmpty(t)
	w.none(t)
	require.LessOrEqual(t, len(w.payloads()), 3)
}

// The follow-up comes promptly, whatever the delay.
func TestCoalesce_aTriggerWhileTheFollowUpRunsLeadsToAnother(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	aqCoalescing(t, s, 1, w, guardasynq.WithDelay(10*time.Minute))
	s.enqueue(t, "index", aqJSON("k", "0"))
	run := w.next(t)
	ids := []string{run.id}
	for i := range 6 {
		s.trigger(t, fmt.Sprint(i))
		s.trigger(t, fmt.Sprint(i, " again"))
		run.returns(nil)
		run = w.next(t)
		require.Equal(t, aqJSON("k", fmt.Sprint(i, " again")), run.payload)
		ids = append(ids, run.id)
	}
	run.returns(nil)
	s.awaitEmpty(t)
	w.none(t)
	require.Len(t, w.payloads(), 7)
	slices.Sort(ids)
	require.Len(t, slices.Compact(ids), 3, "the first and the two follow-ups")
}

func TestCoalesce_aFollowUpThatFailsIsRetried(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithBusy(guardasynq.Coalesce))
	s.serve(t, aqConfig(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}), m(w))
	t.Cleanup(w.release)
	s.enqueue(t, "index", aqJSON("k", "0"))
	run := w.next(t)
	s.trigger(t, "1", asynq.MaxRetry(3))
	run.returns(nil)
	run = w.next(t)
	run.returns(errors.New("of the handler"))
	again := w.next(t)
	require.Equal(t, run.id, again.id)
	require.Equal(t, aqJSON("k", "1"), again.payload)
	info := s.info(t, again.id)
	require.Equal(t, 1, info.Retried)
	require.Equal(t, 3, info.MaxRetry)

	s.trigger(t, "2") // it replaces the one that fails again
	again.returns(errors.New("of the handler"))
	last := w.next(t)
	require.Equal(t, aqJSON("k", "2"), last.payload)
	last.returns(nil)
	s.awaitEmpty(t)
	require.Equal(t, []string{aqJSON("k", "0"), aqJSON("k", "1"), aqJSON("k", "1"), aqJSON("k", "2")}, w.payloads())
}

func TestCoalesce_theRetryOfTheFirstRunDoesNotTakeThePlaceOfTheFollowUp(t *testing.T) {
	t.Parallel()
	for name, counts := range map[string]bool{"a failure": true, "an error that is none": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coalesceFirstRetried(t, counts)
		})
	}
}

func coalesceFirstRetried(t *testing.T, counts bool) {
	t.Helper()
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithBusy(guardasynq.Coalesce))
	s.serve(t, aqConfig(func(c *asynq.Config) {
		c.IsFailure = func(error) bool { return counts }
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}), m(w))
	t.Cleanup(w.release)
	first := s.enqueue(t, "index", aqJSON("k", "0"))
	run := w.next(t)
	s.trigger(t, "1")
	run.returns(errors.New("of the handler"))
	follow := w.next(t)
	require.Equal(t, aqJSON("k", "1"), follow.payload)
	s.trigger(t, "2")
	// The first one's retry comes while "1" runs, and finds that "2" waits.
	s.outcomes.await(t, resultCoalesced, 3)
	s.awaitGone(t, first.ID)
	follow.returns(nil)
	last := w.next(t)
	require.Equal(t, aqJSON("k", "2"), last.payload)
	last.returns(nil)
	s.awaitEmpty(t)
	w.none(t)
	require.Len(t, w.payloads(), 3)
}

// A follow-up that has completed or was archived does not wait, although it is newer than the
// retry of the first run.
func TestCoalesce_theRetryOfTheFirstRunRunsAfterAFollowUpThatHasEnded(t *testing.T) {
	t.Parallel()
	for state, result := range map[asynq.TaskState]error{asynq.TaskStateCompleted: nil, asynq.TaskStateArchived: errAqOther} {
		t.Run(state.String(), func(t *testing.T) {
			t.Parallel()
			s, w := newAqSite(t), newAqWork(t)
			m := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithBusy(guardasynq.Coalesce))
			s.serve(t, aqConfig(func(c *asynq.Config) {
				c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
			}), m(w))
			t.Cleanup(w.release)
			first := s.enqueue(t, "index", aqJSON("k", "0"))
			run := w.next(t)
			s.trigger(t, "1", asynq.MaxRetry(0), asynq.Retention(time.Hour))
			run.returns(errAqOther)
			run = w.next(t)
			run.returns(result)
			s.awaitState(t, run.id, state)
			s.awaitState(t, first.ID, asynq.TaskStateRetry)
			require.NoError(t, s.inspector.RunTask(aqQueue, first.ID))
			again := w.next(t)
			require.Equal(t, first.ID, again.id)
			again.returns(nil)
			s.awaitEmpty(t)
		})
	}
}

func TestCoalesce_tasksOnTheirLastAttemptAndServersWithoutConfigure(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]asynq.Config{"configured": aqConfig(), "without Configure": aqPlainConfig()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w := newAqSite(t), newAqWork(t)
			m := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithBusy(guardasynq.Coalesce))
			s.serve(t, config, m(w))
			t.Cleanup(w.release)
			s.enqueue(t, "index", aqJSON("k", "0"), asynq.MaxRetry(0))
			run := w.next(t)
			for i := range 3 {
				s.trigger(t, fmt.Sprint(i, " first"), asynq.MaxRetry(0))
				s.trigger(t, fmt.Sprint(i), asynq.MaxRetry(0))
				run.returns(nil)
				run = w.next(t)
				require.Equal(t, aqJSON("k", fmt.Sprint(i)), run.payload)
				require.Zero(t, s.info(t, run.id).MaxRetry)
			}
			for range 3 { // follow-ups in the archive block no others
				run.returns(errors.New("for good"))
				require.Equal(t, "for good", s.awaitState(t, run.id, asynq.TaskStateArchived).LastErr)
				s.enqueue(t, "index", aqJSON("k", "9"))
				run = w.next(t)
				s.trigger(t, "10", asynq.MaxRetry(0))
				s.trigger(t, "11", asynq.MaxRetry(0))
				run.returns(nil)
				run = w.next(t)
				require.Equal(t, aqJSON("k", "11"), run.payload)
			}
			run.returns(nil)
			s.awaitEmpty(t)
			archived, err := s.inspector.ListArchivedTasks(aqQueue)
			require.NoError(t, err)
			require.Len(t, archived, 3, "they stay there")
		})
	}
}

func TestCoalesce_theFollowUpCarriesWhatTheNewestTriggerDid(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	aqCoalescing(t, s, 1, w)
	s.enqueue(t, "index", aqJSON("k", "0"))
	run := w.next(t)
	s.trigger(t, "1", asynq.MaxRetry(9), asynq.Timeout(time.Minute))
	deadline := time.Now().Add(time.Hour).Truncate(time.Second)
	s.enqueueTask(t, asynq.NewTaskWithHeaders("index", []byte(aqJSON("k", "2")), map[string]string{"Tenant": "17"}), asynq.TaskID("newest"),
		asynq.MaxRetry(4), asynq.Timeout(7*time.Minute), asynq.Deadline(deadline), asynq.Retention(time.Hour))
	s.outcomes.await(t, resultCoalesced, 2)
	s.awaitState(t, "newest", asynq.TaskStateCompleted)
	run.returns(nil)
	run = w.next(t)
	require.Equal(t, aqJSON("k", "2"), run.payload)
	require.Equal(t, "17", run.task.Headers()["Tenant"])
	require.Equal(t, "newest", run.taskID)
	info := s.info(t, run.id)
	require.Equal(t, 4, info.MaxRetry)
	require.Equal(t, 7*time.Minute, info.Timeout)
	require.Equal(t, deadline, info.Deadline)
	require.Equal(t, time.Hour, info.Retention)
	run.returns(nil)
	s.awaitState(t, run.id, asynq.TaskStateCompleted)
}

// A follow-up has the task ID of its trigger, so the outer middleware must not take the follow-up
// for done when the trigger itself has ended.
func TestCoalesce_insideOfAMiddlewareThatKeepsRepeatsOfATaskOut(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	once := s.middleware(t, nil, guardasynq.WithOnce(time.Hour, guardasynq.FromTaskID()), guardasynq.WithLease(guard.WithName("outer")))
	coalesce := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithBusy(guardasynq.Coalesce), guardasynq.WithLease(guard.WithName("inner")))
	s.serve(t, aqConfig(), once(coalesce(w)))
	t.Cleanup(w.release)
	s.enqueue(t, "index", aqJSON("k", "0"))
	run := w.next(t)
	for i := range 3 {
		s.trigger(t, fmt.Sprint(i, " first"))
		s.trigger(t, fmt.Sprint(i))
		run.returns(nil)
		run = w.next(t)
		require.Equal(t, aqJSON("k", fmt.Sprint(i)), run.payload)
	}
	run.returns(nil)
	s.awaitEmpty(t)
	w.none(t)
	require.Len(t, w.payloads(), 4)
	require.Empty(t, s.outcomes.of(resultDone))
}
