package guardasynq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

func TestRequeue_costsNoAttemptAndNoWorker(t *testing.T) {
	t.Parallel()
	var reported aqErrors
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithLease(guard.WithTTL(40*time.Second)))
	s.serve(t, aqConfig(func(c *asynq.Config) { c.Concurrency, c.ErrorHandler = 2, &reported }), m(w))
	t.Cleanup(w.release)
	s.enqueue(t, "import", aqJSON("k", "holder"))
	holder := w.next(t)
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("1"), asynq.MaxRetry(1))
	info := s.awaitState(t, "1", asynq.TaskStateRetry)
	require.Zero(t, info.Retried)
	require.Equal(t, 1, info.MaxRetry)
	require.Regexp(t, `^guardasynq: postponed by \d\d(\.\d+)?s: guard: "asynq:[\w-]{43}" is busy, held by ".+ pid \d+", for up to [1-4]\d(\.\d+)?s$`, info.LastErr)
	outcome := s.outcomes.await(t, resultPostponed, 1)[0]
	require.Greater(t, outcome.After, 10*time.Second, "of the holder's lease, at least a fourth is left")
	require.LessOrEqual(t, outcome.After, 50*time.Second)
	require.Empty(t, outcome.Copy)
	require.ErrorIs(t, outcome.Err, guard.ErrBusy)
	require.WithinDuration(t, time.Now().Add(outcome.After), info.NextProcessAt, 10*time.Second)

	s.enqueue(t, "import", aqJSON("another", "2"))
	another := w.next(t) // of two workers, one has the holder
	another.returns(nil)
	holder.returns(nil)
	run := w.next(t)
	require.Equal(t, "1", run.id)
	run.returns(nil)
	s.awaitEmpty(t)
	q, err := s.inspector.GetQueueInfo(aqQueue)
	require.NoError(t, err)
	require.Zero(t, q.FailedTotal)
	require.Equal(t, 3, q.ProcessedTotal)
	ids, _ := reported.all()
	require.Empty(t, ids)
}

func TestRequeue_bringsTasksBackOneAfterTheOtherInTheirOrder(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{0, 5} {
		t.Run(fmt.Sprint("MaxRetry ", attempts), func(t *testing.T) {
			t.Parallel()
			s, w, run := aqHolding(t, aqConfig())
			for i := range 5 {
				s.enqueue(t, "import", aqJSON("k", fmt.Sprint(i)), asynq.MaxRetry(attempts))
				s.outcomes.await(t, resultPostponed, i+1)
			}
			for i := range 5 {
				run.returns(nil)
				run = w.next(t)
				require.Equal(t, aqJSON("k", fmt.Sprint(i)), run.payload)
			}
			run.returns(nil)
			s.awaitEmpty(t)
		})
	}
}

// A slowRunTask has the first command that makes a task pending take a while, when it is armed.
type slowRunTask struct{ armed atomic.Bool }

func (*slowRunTask) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*slowRunTask) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *slowRunTask) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any("asynq:{default}:pending")) && h.armed.Swap(false) {
			time.Sleep(200 * time.Millisecond) // the machine
		}
		return next(ctx, cmd)
	}
}

// A task was woken, and asynq does not have it yet, or its worker has not asked for its key. On a
// busy machine, both take a while.
func TestRequeue_bringsNoTaskBeforeTheOneThatIsAboutToAsk(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"asynq", "the worker"} {
		t.Run(slow+" is slow", func(t *testing.T) {
			t.Parallel()
			s, w := newAqSite(t), newAqWork(t)
			var armed atomic.Bool
			var queue slowRunTask
			rdb := s.Client(t)
			rdb.AddHook(&queue)
			m := s.middleware(t, func(ctx context.Context, task *asynq.Task) (string, error) {
				if armed.Load() && string(task.Payload()) == aqJSON("k", "1") {
					time.Sleep(200 * time.Millisecond) // the machine
				}
				return guardasynq.FromJSON("key")(ctx, task)
			}, guardasynq.WithWait(0), guardasynq.WithDelay(10*time.Minute), guardasynq.WithClient(s.client, asynq.NewInspectorFromRedisClient(rdb)))
			s.serve(t, aqConfig(), m(w))
			t.Cleanup(w.release)
			s.enqueue(t, "import", aqJSON("k", "holder"))
			run := w.next(t)
			for _, id := range []string{"1", "2"} {
				s.enqueue(t, "import", aqJSON("k", id), asynq.TaskID(id))
				s.awaitState(t, id, asynq.TaskStateRetry)
			}
			queue.armed.Store(slow == "asynq")
			armed.Store(slow != "asynq")
			for _, id := range []string{"1", "2"} {
				run.returns(nil)
				run = w.next(t)
				require.Equal(t, id, run.id)
			}
			run.returns(nil)
			s.awaitEmpty(t)
		})
	}
}

// The store announces the end of a run before the run itself brings a task. A second task that was
// brought could overtake the first if it asked for the key earlier.
func TestRequeue_bringsOneTaskAtTheEndOfARun(t *testing.T) {
	t.Parallel()
	s, w, stops, asks := newAqSite(t), newAqWork(t), new(aqStops), make(chan struct{})
	var free atomic.Bool
	key := func(ctx context.Context, task *asynq.Task) (string, error) {
		if id, _ := asynq.GetTaskID(ctx); free.Load() && id == "1" {
			<-asks
		}
		return guardasynq.FromJSON("key")(ctx, task)
	}
	g := s.newGuard(t, guard.WithHook(stops.hook()))
	m := s.middlewareOf(t, g, key, guardasynq.WithWait(0), guardasynq.WithDelay(10*time.Minute))
	s.serve(t, aqConfig(), m(w))
	t.Cleanup(w.release)
	s.send(t, "holder")
	run := w.next(t)
	for _, id := range []string{"1", "2"} {
		s.send(t, id)
		s.awaitState(t, id, asynq.TaskStateRetry)
	}
	free.Store(true)
	released := stops.at(t, "holder release")
	run.returns(nil)
	released.await(t)
	s.awaitState(t, "1", asynq.TaskStateActive)
	released.pass()
	s.outcomes.await(t, resultRan, 1)
	require.Equal(t, asynq.TaskStateRetry, s.info(t, "2").State)
	close(asks)
	for _, id := range []string{"1", "2"} {
		run = w.next(t)
		require.Equal(t, id, run.id)
		run.returns(nil)
	}
	s.awaitEmpty(t)
}

// The run ends after the task finds its key busy, and before the task is known to wait.
func TestRequeue_doesNotMissTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	s, w, stops := newAqSite(t), newAqWork(t), new(aqStops)
	g := s.newGuard(t, guard.WithHook(stops.hook()))
	s.serve(t, aqConfig(), s.middlewareOf(t, g, guardasynq.FromJSON("key"), guardasynq.WithDelay(10*time.Minute))(w))
	t.Cleanup(w.release)
	s.send(t, "T1")
	first := w.next(t)
	busy := stops.at(t, "T2 acquire got")
	s.send(t, "T2")
	busy.await(t)
	first.returns(nil)
	s.outcomes.await(t, resultRan, 1)
	busy.pass()
	w.next(t).returns(nil)
	s.awaitEmpty(t)
	require.Empty(t, s.outcomes.of(resultPostponed))
}

// Another program holds the key, so that no notification comes when the key is free.
func TestRequeue_comesBackByItself(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string]int{"as it is": 3, "as a copy": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w := newAqSite(t), newAqWork(t)
			m := s.middleware(t, guardasynq.FromType(), guardasynq.WithDelay(time.Second))
			s.serve(t, aqConfig(), m(w))
			t.Cleanup(w.release)
			elsewhere := aqElsewhere(t, s, guardasynq.FromType())
			s.enqueue(t, "import", "1", asynq.MaxRetry(attempts))
			s.outcomes.await(t, resultPostponed, 2)
			elsewhere(nil)
			w.next(t).returns(nil)
			s.awaitEmpty(t)
			for _, o := range s.outcomes.of(resultPostponed) {
				require.GreaterOrEqual(t, o.After, time.Second)
				require.LessOrEqual(t, o.After, 1252*time.Millisecond)
			}
		})
	}
}

// aqElsewhere runs a task of the type "import" as another process would. It returns a function
// that ends the run.
func aqElsewhere(t *testing.T, s *aqSite, key guardasynq.KeyFunc) func(error) {
	t.Helper()
	begun, end, ended := make(chan struct{}), make(chan error, 1), make(chan struct{})
	h := s.middlewareOf(t, s.newGuard(t), key)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		close(begun)
		return <-end
	}))
	go func() {
		defer close(ended)
		_ = h.ProcessTask(context.Background(), asynq.NewTask("import", []byte(aqJSON("k", "elsewhere"))))
	}()
	<-begun
	t.Cleanup(func() {
		select {
		case end <- nil:
		default:
		}
		<-ended
	})
	return func(err error) {
		end <- err
		<-ended
	}
}

func TestRequeue_doesNotComeBackAllAtOnce(t *testing.T) {
	t.Parallel()
	s, w, _ := aqHolding(t, aqConfig(), guardasynq.WithDelay(100*time.Second))
	const tasks = 30
	for i := range tasks {
		s.enqueue(t, "import", aqJSON("k", fmt.Sprint(i)))
	}
	delays, seconds := map[time.Duration]bool{}, map[time.Duration]bool{}
	for _, o := range s.outcomes.await(t, resultPostponed, tasks) {
		require.GreaterOrEqual(t, o.After, 100*time.Second)
		require.LessOrEqual(t, o.After, 126*time.Second)
		delays[o.After], seconds[o.After/time.Second] = true, true
	}
	require.Len(t, delays, tasks)
	require.GreaterOrEqual(t, len(seconds), 5)
	w.none(t)
}

// asynq would run a completed or archived task again, and a failed task too early.
func TestRequeue_doesNotBringBackWhatHasEndedMeanwhile(t *testing.T) {
	t.Parallel()
	for state, result := range map[asynq.TaskState]error{
		asynq.TaskStateCompleted: nil, asynq.TaskStateArchived: errors.Join(errors.New("for good"), asynq.SkipRetry), asynq.TaskStateRetry: errAqOther,
	} {
		t.Run(state.String(), func(t *testing.T) {
			t.Parallel()
			s, w := newAqSite(t), newAqWork(t)
			here := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithDelay(10*time.Minute))(w)
			there := s.middlewareOf(t, s.newGuard(t), guardasynq.FromJSON("key"))(w)
			var moved atomic.Bool
			s.serve(t, aqConfig(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				if moved.Load() {
					return there.ProcessTask(ctx, task)
				}
				return here.ProcessTask(ctx, task)
			}))
			t.Cleanup(w.release)
			elsewhere := aqElsewhere(t, s, guardasynq.FromJSON("key"))
			s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("1"), asynq.Retention(time.Hour))
			s.awaitState(t, "1", asynq.TaskStateRetry)
			moved.Store(true)
			elsewhere(nil)
			// fails if the end of the run elsewhere has brought the task back already
			_ = s.inspector.RunTask(aqQueue, "1")
			w.next(t).returns(result)
			require.Eventually(t, func() bool {
				select {
				case again := <-w.begun:
					again.returns(result) // the watch looked before RunTask, and acted after it
				default:
				}
				info := s.info(t, "1")
				return info.State == state && (state != asynq.TaskStateRetry || info.Retried > 0)
			}, aqSoon, aqPoll)
			moved.Store(false)
			s.enqueue(t, "import", aqJSON("k", "2"), asynq.TaskID("2"))
			w.next(t).returns(nil) // its end finds that "1" was postponed here
			s.awaitGone(t, "2")
			w.none(t)
			require.Equal(t, state, s.info(t, "1").State)
		})
	}
}

func TestSkip_endsTheTaskAsDone(t *testing.T) {
	t.Parallel()
	s, w, holder := aqHolding(t, aqConfig(), guardasynq.WithBusy(guardasynq.Skip))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("1"), asynq.Retention(time.Hour), asynq.MaxRetry(0))
	require.Empty(t, s.awaitState(t, "1", asynq.TaskStateCompleted).Result)
	outcome := s.outcomes.await(t, resultSkipped, 1)[0]
	require.ErrorIs(t, outcome.Err, guard.ErrBusy)
	require.Zero(t, outcome.After)
	holder.returns(nil)
	s.awaitEmpty(t)
	require.Len(t, w.payloads(), 1)
}

func TestFail_countsAndArchivesAtTheLast(t *testing.T) {
	t.Parallel()
	var reported aqErrors
	s, w, holder := aqHolding(t, aqConfig(func(c *asynq.Config) {
		c.ErrorHandler = &reported
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
	}), guardasynq.WithBusy(guardasynq.Fail))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("1"), asynq.MaxRetry(1))
	info := s.awaitState(t, "1", asynq.TaskStateArchived)
	require.Equal(t, 1, info.Retried)
	require.Regexp(t, `^guardasynq: task "import": guard: ".+" is busy`, info.LastErr)
	s.outcomes.await(t, resultBusy, 2)
	ids, errs := reported.all()
	require.Equal(t, []string{"1", "1"}, ids)
	var busy *guard.BusyError
	require.ErrorAs(t, errs[0], &busy)
	q, err := s.inspector.GetQueueInfo(aqQueue)
	require.NoError(t, err)
	require.Equal(t, 2, q.FailedTotal)
	holder.returns(nil)
	s.awaitEmpty(t)
	require.Len(t, w.payloads(), 1)
}

func TestWait_endsASecondBeforeTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, end := b.middleware(byCustomer, guardasynq.WithWait(time.Hour))
		defer end()
		gate := make(chan struct{})
		h := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			<-gate
			return nil
		}))
		holder := b.deliver(h, lifeTask{Customer: "c"}, 30*time.Minute)
		synctest.Wait()
		begun := time.Now()
		require.ErrorIs(t, <-b.deliver(h, lifeTask{Customer: "c"}, 3*time.Second), guard.ErrBusy)
		require.Equal(t, 2*time.Second, time.Since(begun).Round(100*time.Millisecond))
		require.Len(t, b.seen.of(resultPostponed), 1)
		close(gate)
		require.NoError(t, <-holder)
	})
}

func TestSkipAndFail_letAnyNumberWait(t *testing.T) {
	t.Parallel()
	for _, busy := range []guardasynq.BusyPolicy{guardasynq.Skip, guardasynq.Fail} {
		t.Run(fmt.Sprint("policy ", int(busy)), func(t *testing.T) {
			t.Parallel()
			s, w, run := aqHolding(t, aqConfig(), guardasynq.WithWait(time.Minute), guardasynq.WithBusy(busy))
			for i := range 4 {
				s.enqueue(t, "import", aqJSON("k", fmt.Sprint(i)))
			}
			require.Eventually(t, func() bool {
				q, err := s.inspector.GetQueueInfo(aqQueue)
				return err == nil && q.Active == 5
			}, aqSoon, aqPoll)
			for range 4 {
				run.returns(nil)
				run = w.next(t)
			}
			run.returns(nil)
			s.awaitEmpty(t)
		})
	}
}
