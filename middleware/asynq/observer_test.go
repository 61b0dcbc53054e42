package guardasynq_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

func TestOutcome_isCalledOncePerDelivery(t *testing.T) {
	t.Parallel()
	var order []string
	var mu sync.Mutex
	var second aqLog
	note := func(name string) guardasynq.Option {
		return aqObserve(func(ctx context.Context, _ aqOutcome) {
			mu.Lock()
			defer mu.Unlock()
			id, _ := asynq.GetTaskID(ctx)
			order = append(order, id+" "+name)
			panic("of a hook")
		})
	}
	s, w, holder := aqHolding(t, aqConfig(), note("one"), guardasynq.WithLease(guard.WithHook(guard.Hook{})), note("two"),
		aqObserve(second.add), guardasynq.WithLease(guard.WithName("imports")))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("41"), asynq.MaxRetry(0))
	postponed := s.outcomes.await(t, resultPostponed, 1)[0]
	require.GreaterOrEqual(t, postponed.After, 10*time.Minute)
	require.ErrorIs(t, postponed.Err, guard.ErrBusy)
	require.Positive(t, postponed.Duration)
	require.Equal(t, "41~1", postponed.Copy)
	require.Equal(t, "busy", postponed.Skipped)
	require.NotEmpty(t, postponed.Label)
	require.Equal(t, "asynq", postponed.Adapter)
	require.Equal(t, "imports", postponed.Name)

	fence := guard.Fence(holder.ctx)
	require.NotZero(t, fence)
	lease, ok := guard.FromContext(holder.ctx)
	require.True(t, ok)
	require.Equal(t, fence, lease.Fence())
	require.Equal(t, "imports", lease.Name())
	require.Equal(t, "k", guardasynq.Key(holder.ctx))
	// so that the duration has something to show
	time.Sleep(time.Until(holder.begun.Add(50 * time.Millisecond)))
	holder.returns(nil)
	w.next(t).returns(errAqOther)
	all := s.outcomes.await(t, resultRan, 2)
	require.GreaterOrEqual(t, all[0].Duration, 50*time.Millisecond)
	all[0].Duration, all[0].Start = 0, time.Time{}
	require.Equal(t, guard.Outcome{Adapter: "asynq", Result: resultRan, Name: "imports", Fence: fence}, all[0].Outcome)
	require.Equal(t, errAqOther, all[1].Err)
	require.Greater(t, all[1].Fence, fence)
	s.awaitState(t, "41~1", asynq.TaskStateArchived)
	second.await(t, resultRan, 2)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"41 one", "41 two", "holder one", "holder two", "41~1 one", "41~1 two"}, order)
}

func TestOutcome_runsThatDoNotReturnAreAborted(t *testing.T) {
	t.Parallel()
	g := optionsGuard(t)
	var log aqLog
	m, err := guardasynq.New(g, guardasynq.FromType(), aqNoClient(t), guardasynq.WithBusy(guardasynq.Skip), aqObserve(log.add))
	require.NoError(t, err)
	for name, end := range map[string]func(){"panic": func() { panic("of the handler") }, "goexit": runtime.Goexit} {
		h := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { end(); return nil }))
		var caught any
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { caught = recover() }()
			_ = h.ProcessTask(context.Background(), asynq.NewTask(name, nil))
		}()
		<-done
		if name == "panic" {
			require.Equal(t, "of the handler", caught, "it goes on up")
		}
	}
	all := log.of(resultRan)
	require.Len(t, all, 2)
	for _, o := range all {
		require.True(t, o.Aborted)
		require.NotZero(t, o.Fence)
		lease, err := g.Acquire(t.Context(), "any")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	again := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))
	require.NoError(t, again.ProcessTask(t.Context(), asynq.NewTask("panic", nil)), "the key is free")
	require.False(t, log.of(resultRan)[2].Aborted)
}

func TestOutcome_panicsOfTheUsersFunctionsHaveAResult(t *testing.T) {
	t.Parallel()
	g := optionsGuard(t)
	for name, c := range map[string]struct {
		key  guardasynq.KeyFunc
		opts []guardasynq.Option
	}{
		"a key": {key: func(context.Context, *asynq.Task) (string, error) { panic("of the user") }},
		"the options of a lease": {key: guardasynq.FromType(), opts: []guardasynq.Option{
			guardasynq.WithTaskLease(func(context.Context, *asynq.Task) []guard.Option { panic("of the user") }),
		}},
	} {
		var log aqLog
		m, err := guardasynq.New(g, c.key, append(c.opts, aqNoClient(t), guardasynq.WithBusy(guardasynq.Skip), aqObserve(log.add))...)
		require.NoError(t, err)
		h := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))
		require.PanicsWithValue(t, "of the user", func() { _ = h.ProcessTask(t.Context(), asynq.NewTask("import", nil)) })
		outcomes := log.of(resultRefused)
		require.Len(t, outcomes, 1, name)
		require.False(t, outcomes[0].Aborted)
	}
}

func TestOutcome_aStoreThatCannotBeAskedPostpones(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempts int
		err      error
		opts     []guardasynq.Option
	}{
		"as it is": {attempts: 3, err: guard.ErrStore}, "as a copy": {attempts: 0, err: guard.ErrStore}, "a Guard that was closed": {attempts: 3, err: guard.ErrClosed},
		"coalescing": {attempts: 0, err: guard.ErrStore, opts: []guardasynq.Option{guardasynq.WithBusy(guardasynq.Coalesce)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reported aqErrors
			s, leases, w := newAqSite(t), newAqSite(t), newAqWork(t)
			m := s.middlewareOf(t, leases.guard, guardasynq.FromType(), c.opts...)
			s.serve(t, aqConfig(func(c *asynq.Config) { c.ErrorHandler = &reported }), m(w))
			t.Cleanup(w.release)
			if errors.Is(c.err, guard.ErrClosed) {
				require.NoError(t, leases.guard.Close(t.Context()))
			} else {
				leases.Kill()
			}
			s.enqueue(t, "import", "1", asynq.TaskID("41"), asynq.MaxRetry(c.attempts))
			outcome := s.outcomes.await(t, resultUnavailable, 1)[0]
			require.ErrorIs(t, outcome.Err, c.err)
			require.GreaterOrEqual(t, outcome.After, 5*time.Second)
			require.LessOrEqual(t, outcome.After, 6300*time.Millisecond)
			if c.attempts == 0 {
				require.Equal(t, "41~1", outcome.Copy)
				s.awaitState(t, "41~1", asynq.TaskStateScheduled)
				s.awaitGone(t, "41")
			} else {
				require.Zero(t, s.awaitState(t, "41", asynq.TaskStateRetry).Retried)
			}
			_, errs := reported.all()
			require.Len(t, errs, 1, "that a store is away is worth telling")
			require.ErrorIs(t, errs[0], c.err)
			require.NotContains(t, errs[0].Error(), aqNotConfigured)
			require.Equal(t, c.attempts == 0, errors.Is(errs[0], asynq.RevokeTask))
			if errors.Is(c.err, guard.ErrStore) {
				leases.Restart()
				w.next(t).returns(nil)
				s.awaitEmpty(t)
			}
		})
	}
}

func TestOutcome_aTaskThatAsynqGivesUpWhileItWaitsIsCanceled(t *testing.T) {
	t.Parallel()
	s, w, _ := aqHolding(t, aqConfig(), guardasynq.WithWait(time.Minute))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("1"), asynq.MaxRetry(3))
	s.awaitState(t, "1", asynq.TaskStateActive)
	require.Eventually(t, func() bool { // the server listens for it
		require.NoError(t, s.inspector.CancelProcessing("1"))
		return len(s.outcomes.of(resultCanceled)) > 0
	}, aqSoon, 5*aqPoll)
	outcome := s.outcomes.of(resultCanceled)[0]
	require.ErrorIs(t, outcome.Err, context.Canceled)
	require.Equal(t, 1, s.awaitState(t, "1", asynq.TaskStateRetry).Retried)
	w.none(t)
}
