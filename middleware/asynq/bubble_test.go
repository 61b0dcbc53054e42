package guardasynq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// A bubble is a middleware in virtual time, without a queue, over a store that can be frozen.
type bubble struct {
	guard.Locker
	t     *testing.T
	seen  aqLog
	base  func(context.Context) context.Context // makes a task's context, as asynq does
	queue asynq.RedisConnOpt

	mu     sync.Mutex
	frozen bool
}

// inBubble calls f in virtual time. The server of the tasks has two workers.
func inBubble(t *testing.T, f func(t *testing.T, b *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		config := asynq.Config{Concurrency: 2}
		config = guardasynq.Configure(config)
		// asynq delivers no task
		b := &bubble{t: t, queue: asynq.RedisClientOpt{Addr: "127.0.0.1:1"}}
		b.Locker = linetest.Line{Locker: memory.New(), Ask: b.ask}
		b.base = func(context.Context) context.Context { return config.BaseContext() }
		f(t, b)
	})
}

func (b *bubble) freeze(frozen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = frozen
}

func (b *bubble) ask(ctx context.Context, _ linetest.Call) error {
	b.mu.Lock()
	frozen := b.frozen
	b.mu.Unlock()
	if frozen {
		<-ctx.Done()
	}
	return ctx.Err()
}

// middleware returns a middleware over a Guard of its own, as in another process, and a function
// that closes the Guard.
func (b *bubble) middleware(key guardasynq.KeyFunc, opts ...guardasynq.Option) (m asynq.MiddlewareFunc, end func()) {
	b.t.Helper()
	g, err := guard.New(b.Locker, guard.WithNamespace("test"))
	require.NoError(b.t, err)
	client, inspector := asynq.NewClient(b.queue), asynq.NewInspector(b.queue)
	m, err = guardasynq.New(g, key, append([]guardasynq.Option{
		guardasynq.WithClient(client, inspector), aqObserve(b.seen.add),
	}, opts...)...)
	require.NoError(b.t, err)
	return m, func() {
		b.freeze(false)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour) // if a test has failed
		defer cancel()
		assert.NoError(b.t, errors.Join(g.Close(ctx), client.Close(), inspector.Close()))
	}
}

// deliver gives a task to a worker, and returns the worker's result.
func (b *bubble) deliver(h asynq.Handler, task lifeTask, timeout time.Duration) <-chan error {
	returned := make(chan error, 1)
	made := newLifeTask(b.t, task)
	go func() {
		ctx, cancel := context.WithTimeout(b.base(context.Background()), timeout)
		defer cancel()
		returned <- h.ProcessTask(ctx, made)
	}()
	return returned
}

// requirePostponed requires that the error tells asynq to postpone a task because the store is
// away.
func (b *bubble) requirePostponed(err, why error) {
	b.t.Helper()
	var postponed *guardasynq.PostponedError
	require.ErrorAs(b.t, err, &postponed)
	require.ErrorIs(b.t, err, why)
	require.Len(b.t, b.seen.of(resultUnavailable), 1)
}

var byCustomer = guardasynq.FromJSON("customer")

// The request to the store alone may take 5 s.
func TestDeadline_aTaskThatCannotGetItsKeyIsPostponedBefore(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"a second": time.Second, "3 s": 3 * time.Second, "half an hour": 30 * time.Minute} {
		for with, opts := range map[string][]guardasynq.Option{
			"a key": nil, "WithOnce beside it": {guardasynq.WithOnce(time.Hour, guardasynq.FromPayload())},
			"Skip": {guardasynq.WithBusy(guardasynq.Skip)}, "Fail": {guardasynq.WithBusy(guardasynq.Fail)},
		} {
			t.Run(name+", "+with, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bubble) {
					m, end := b.middleware(byCustomer, opts...)
					defer end()
					b.freeze(true)
					begun := time.Now()
					h := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("ran") }))
					b.requirePostponed(<-b.deliver(h, lifeTask{Customer: "c"}, timeout), guard.ErrStore)
					left := timeout - time.Since(begun)
					require.GreaterOrEqual(t, left, min(timeout/2, time.Second/2)-100*time.Millisecond, "asynq needs some of it")
				})
			})
		}
	}
}

// If asynq learned of a success after the deadline, it would archive the task or run it again.
func TestDeadline_asynqLearnsOfASuccessInTimeEvenIfTheReleaseHasNoAnswer(t *testing.T) {
	for name, opts := range map[string][]guardasynq.Option{
		"a key": nil, "WithOnce beside it": {guardasynq.WithOnce(time.Hour, guardasynq.FromPayload())},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				m, end := b.middleware(byCustomer, opts...)
				defer end()
				begun := time.Now()
				h := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
					time.Sleep(1500 * time.Millisecond)
					b.freeze(true)
					return nil
				}))
				require.NoError(t, <-b.deliver(h, lifeTask{Customer: "c"}, 2*time.Second))
				require.Less(t, time.Since(begun), 1950*time.Millisecond)
			})
		})
	}
}

// The bound of requests does not bound the run.
func TestDeadline_aRunHasAllTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, end := b.middleware(byCustomer)
		defer end()
		begun := time.Now()
		h := m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		require.ErrorIs(t, <-b.deliver(h, lifeTask{Customer: "c"}, 3*time.Second), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(begun))
	})
}

func TestLost_aRunThatAnOutageCutsOffIsPostponed(t *testing.T) {
	failure := errors.New("half done")
	for name, c := range map[string]struct {
		returns   func(ctx context.Context) error
		opts      []guard.Option
		calm      bool // there is no outage
		postponed bool
	}{
		"its context's error":          {returns: context.Context.Err, postponed: true},
		"the cause of that":            {returns: context.Cause, postponed: true},
		"wrapped":                      {returns: func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }, postponed: true},
		"another error":                {returns: func(context.Context) error { return failure }},
		"another error as well":        {returns: func(ctx context.Context) error { return errors.Join(failure, ctx.Err()) }},
		"after the longest hold":       {returns: context.Context.Err, opts: []guard.Option{guard.WithMaxHold(3 * time.Second)}, calm: true},
		"a lease that is not renewed":  {returns: context.Context.Err, opts: []guard.Option{guard.WithoutRenewal()}, calm: true},
		"of a lease that is too short": {returns: context.Cause, opts: []guard.Option{guard.WithoutRenewal()}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				m, end := b.middleware(byCustomer, guardasynq.WithLease(c.opts...))
				defer end()
				h := m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					b.freeze(!c.calm)
					<-ctx.Done()
					return c.returns(ctx)
				}))
				err := <-b.deliver(h, lifeTask{Customer: "c"}, 30*time.Minute)
				require.ErrorIs(t, err, guard.ErrLost)
				if c.postponed {
					b.requirePostponed(err, guard.ErrLost)
					require.Positive(t, b.seen.of(resultUnavailable)[0].Fence)
					require.True(t, guardasynq.IsPostponed(&asynq.TaskInfo{State: asynq.TaskStateRetry, LastErr: err.Error()}))
					require.NotContains(t, err.Error(), "guardasynq: postponed", "that has not run: Coalesce goes by it")
					return
				}
				_, postponed := errors.AsType[*guardasynq.PostponedError](err)
				require.False(t, postponed, "%v", err)
				require.Len(t, b.seen.of(resultRan), 1)
			})
		})
	}
}

// A task with a key and WithOnce has one lease while it waits for the other one.
func TestOnce_aTaskThatLosesItsLeaseWhileItWaitsIsPostponed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, end := b.middleware(byCustomer, guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()),
			guardasynq.WithBusy(guardasynq.Fail), guardasynq.WithWait(time.Minute))
		defer end()
		gate := make(chan struct{})
		h := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			<-gate
			return nil
		}))
		holder := b.deliver(h, lifeTask{Customer: "c", Work: 1}, 30*time.Minute)
		synctest.Wait()
		waits := b.deliver(h, lifeTask{Customer: "c", Work: 2}, 30*time.Minute)
		synctest.Wait()
		b.freeze(true)
		b.requirePostponed(<-waits, guard.ErrLost)
		b.freeze(false)
		close(gate)
		require.NoError(t, <-holder)
	})
}

func TestOnce_theWaitIsThatForBothLeases(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, end := b.middleware(byCustomer, guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()),
			guardasynq.WithBusy(guardasynq.Fail), guardasynq.WithWait(20*time.Second))
		defer end()
		gate := make(chan struct{})
		h := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			<-gate
			return nil
		}))
		holder := b.deliver(h, lifeTask{Customer: "c", Work: 1}, 30*time.Minute)
		synctest.Wait()
		first := b.deliver(h, lifeTask{Customer: "c", Work: 2}, 30*time.Minute)
		time.Sleep(10 * time.Second)
		begun := time.Now()
		repeat := b.deliver(h, lifeTask{Customer: "c", Work: 2}, 30*time.Minute)
		require.ErrorIs(t, <-first, guard.ErrBusy)
		require.ErrorIs(t, <-repeat, guard.ErrBusy)
		require.Less(t, time.Since(begun), 22*time.Second, "10 s for the one, and 10 s for the other")
		close(gate)
		require.NoError(t, <-holder)
	})
}
