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

// A handler postpones its task, again and again: it costs no attempt, and archives nothing.
func TestSnooze_costsNoAttemptAndNeverArchives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config   asynq.Config
		attempts int
		copies   bool
		wrap     func(error) error
		nested   bool
	}{
		"attempts left":        {config: aqConfig(), attempts: 2},
		"wrapped":              {config: aqConfig(), attempts: 2, wrap: func(err error) error { return fmt.Errorf("the service is busy: %w", err) }},
		"last attempt":         {config: aqConfig(), attempts: 0, copies: true},
		"without Configure":    {config: aqPlainConfig(), attempts: 2, copies: true},
		"two middlewares":      {config: aqConfig(), attempts: 2, nested: true},
		"two, on last attempt": {config: aqConfig(), attempts: 0, copies: true, nested: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAqSite(t)
			var reported aqErrors
			config := c.config
			if handler := config.ErrorHandler; handler == nil && !c.copies {
				config = aqConfig(func(c *asynq.Config) { c.ErrorHandler = &reported })
			}
			var calls atomic.Int64
			h := s.middleware(t, guardasynq.FromJSON("key"))(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				if guardasynq.TaskID(ctx, task) != "1" || calls.Add(1) > 3 {
					return nil
				}
				err := guardasynq.Snooze(500 * time.Millisecond)
				if c.wrap != nil {
					err = c.wrap(err)
				}
				return err
			}))
			if c.nested {
				h = s.middleware(t, guardasynq.FromType(), guardasynq.WithGroup("outer"))(h)
			}
			s.serve(t, config, h)
			s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("1"), asynq.MaxRetry(c.attempts))
			outcome := s.outcomes.await(t, resultPostponed, 1)[0]
			require.Equal(t, 500*time.Millisecond, outcome.After)
			require.Positive(t, outcome.Fence, "the handler ran")
			require.Equal(t, c.copies, outcome.Copy != "")
			if !c.copies {
				info := s.awaitState(t, "1", asynq.TaskStateRetry)
				require.Zero(t, info.Retried)
				require.True(t, guardasynq.IsPostponed(info))
				require.Contains(t, info.LastErr, "guardasynq: the handler postponed it by 500ms")
			}
			s.outcomes.await(t, resultPostponed, 3)
			s.awaitEmpty(t)
			require.EqualValues(t, 4, calls.Load())
			q, err := s.inspector.GetQueueInfo(aqQueue)
			require.NoError(t, err)
			require.Zero(t, q.Archived)
			require.Zero(t, q.FailedTotal)
			ids, _ := reported.all()
			require.Empty(t, ids)
		})
	}
}

// Its key is free meanwhile, and the end of another run of the key does not bring it.
func TestSnooze_waitsForItsTimeAndNotForItsKey(t *testing.T) {
	t.Parallel()
	for attempts, c := range map[int]struct {
		id    string
		state asynq.TaskState
	}{25: {"later", asynq.TaskStateRetry}, 0: {"later~1", asynq.TaskStateScheduled}} {
		t.Run(fmt.Sprint("MaxRetry ", attempts), func(t *testing.T) {
			t.Parallel()
			s := newAqSite(t)
			h := s.middleware(t, guardasynq.FromJSON("key"))
			s.serve(t, aqConfig(), h(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				if guardasynq.TaskID(ctx, task) == "later" {
					return guardasynq.Snooze(10 * time.Minute)
				}
				return nil
			})))
			s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("later"), asynq.MaxRetry(attempts))
			s.awaitState(t, c.id, c.state)
			s.enqueue(t, "import", aqJSON("k", "2"), asynq.TaskID("other"))
			s.outcomes.await(t, resultRan, 1)
			s.awaitGone(t, "other")
			time.Sleep(aqQuiet) // it would be brought by now
			info := s.info(t, c.id)
			require.NotNil(t, info)
			require.Equal(t, c.state, info.State)
			require.WithinDuration(t, time.Now().Add(10*time.Minute), info.NextProcessAt, time.Minute)
		})
	}
}

func TestSnooze_withOnceLeavesNoMarker(t *testing.T) {
	t.Parallel()
	s := newAqSite(t)
	var calls atomic.Int64
	m := s.middleware(t, guardasynq.FromType(), guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()))
	s.serve(t, aqConfig(), m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if calls.Add(1) == 1 {
			return guardasynq.Snooze(0)
		}
		return nil
	})))
	s.enqueue(t, "import", "1")
	s.outcomes.await(t, resultRan, 1)
	s.awaitEmpty(t)
	require.EqualValues(t, 2, calls.Load())
}

func TestIsPostponed_tellsFailuresApart(t *testing.T) {
	t.Parallel()
	s, _, holder := aqHolding(t, aqConfig(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	}))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("busy"))
	require.True(t, guardasynq.IsPostponed(s.awaitState(t, "busy", asynq.TaskStateRetry)))
	holder.returns(errAqOther)
	require.False(t, guardasynq.IsPostponed(s.awaitState(t, "holder", asynq.TaskStateRetry)))
	require.False(t, guardasynq.IsPostponed(nil))
}

// Orders of one customer are run one at a time, and each of them once.
func TestOnce_aRepeatIsNotWhatMustNotRunAtATime(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, guardasynq.FromHeader("Customer"), guardasynq.WithDelay(10*time.Minute), guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()))
	s.serve(t, aqConfig(), m(w))
	t.Cleanup(w.release)
	send := func(customer, order string) {
		s.enqueueTask(t, asynq.NewTaskWithHeaders("order", []byte(order), map[string]string{"Customer": customer}), asynq.Retention(time.Hour))
	}
	send("one", "1")
	first := w.next(t)
	send("one", "2")
	send("two", "3")
	other := w.next(t)
	require.Equal(t, "3", other.payload, "another customer's")
	lease, ok := guard.FromContext(other.ctx)
	require.True(t, ok)
	require.Equal(t, guard.Fence(other.ctx), lease.Fence())
	other.returns(nil)
	_, err := first.task.ResultWriter().Write([]byte("12 pages"))
	require.NoError(t, err)
	first.returns(nil)
	second := w.next(t)
	require.Equal(t, "2", second.payload)
	send("one", "1") // ends, though its customer is busy
	send("two", "1") // a repeat, of whichever customer
	s.outcomes.await(t, resultDone, 2)
	second.returns(nil)
	s.awaitEmpty(t)
	require.Len(t, w.payloads(), 3)
	completed, err := s.inspector.ListCompletedTasks(aqQueue)
	require.NoError(t, err)
	results := map[string]int{}
	for _, task := range completed {
		results[string(task.Result)]++
	}
	require.Equal(t, map[string]int{"12 pages": 3, "": 2}, results)
}

// A middleware over all types of a mux, of which one has the field.
func TestUnguarded_tasksWithoutAKeyRun(t *testing.T) {
	t.Parallel()
	byKey := guardasynq.FromJSON("key")
	for name, c := range map[string]struct {
		key     guardasynq.KeyFunc
		opts    []guardasynq.Option
		payload string
		result  string
		runs    bool
	}{
		"a key":                  {key: guardasynq.Optional(byKey), payload: aqJSON("k", "1"), result: resultRan, runs: true},
		"none":                   {key: guardasynq.Optional(byKey), payload: `{}`, result: resultUnguarded, runs: true},
		"no JSON":                {key: guardasynq.Optional(byKey), payload: `no JSON`, result: resultUnguarded, runs: true},
		"none, and not optional": {key: byKey, payload: `{}`, result: resultRefused},
		"by the function":        {key: func(context.Context, *asynq.Task) (string, error) { return "", guardasynq.ErrUnguarded }, result: resultUnguarded, runs: true},
		"wrapped": {key: func(context.Context, *asynq.Task) (string, error) {
			return "", fmt.Errorf("it is: %w", guardasynq.ErrUnguarded)
		}, result: resultUnguarded, runs: true},
		"another error":           {key: guardasynq.Optional(func(context.Context, *asynq.Task) (string, error) { return "", errAqOther }), result: resultRefused},
		"none, but once":          {key: guardasynq.Optional(byKey), opts: []guardasynq.Option{guardasynq.WithOnce(time.Hour, guardasynq.FromPayload())}, payload: `{}`, result: resultRan, runs: true},
		"a key, and never a once": {key: byKey, opts: []guardasynq.Option{guardasynq.WithOnce(time.Hour, guardasynq.Optional(guardasynq.FromHeader("None")))}, payload: aqJSON("k", "1"), result: resultRan, runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log aqLog
			m, err := guardasynq.New(optionsGuard(t), c.key, append(c.opts, aqNoClient(t), aqObserve(log.add))...)
			require.NoError(t, err)
			runs := false
			err = m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				_, leased := guard.FromContext(ctx)
				require.Equal(t, c.result == resultRan, leased)
				runs = true
				return nil
			})).ProcessTask(t.Context(), asynq.NewTask("import", []byte(c.payload)))
			require.Equal(t, c.runs, err == nil, err)
			require.Equal(t, c.runs, runs)
			require.Len(t, log.of(c.result), 1)
		})
	}
	require.PanicsWithValue(t, "guardasynq: Optional: the function must not be nil", func() { guardasynq.Optional(nil) })
}

// The ID of a task is free while a copy is in its place. A task that is enqueued under it
// meanwhile runs for both.
func TestCopy_endsIfItsOriginalWasEnqueuedAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]struct {
		payload string
		runs    int
	}{"the same": {"1", 2}, "another payload": {"2", 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w, holder := aqHolding(t, aqConfig(), guardasynq.WithWait(0))
			send := func(payload string) {
				s.enqueue(t, "import", aqJSON("k", payload), asynq.TaskID("41"), asynq.MaxRetry(0))
			}
			send("1")
			s.awaitState(t, "41~1", asynq.TaskStateScheduled)
			s.awaitGone(t, "41")
			_, err := s.client.Enqueue(asynq.NewTask("import", []byte(aqJSON("k", again.payload))), asynq.TaskID("41"), asynq.ProcessIn(time.Hour))
			require.NoError(t, err, "asynq cannot know")
			holder.returns(nil) // which brings the copy
			if again.runs == 2 {
				s.outcomes.await(t, resultCoalesced, 1)
			} else {
				w.next(t).returns(nil)
			}
			s.awaitGone(t, "41~1")
			require.NoError(t, s.inspector.RunTask(aqQueue, "41"))
			w.next(t).returns(nil)
			s.awaitEmpty(t)
			require.Len(t, w.payloads(), again.runs)
		})
	}
}
