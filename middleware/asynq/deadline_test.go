package guardasynq_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// A deadlineTask is a task whose key another process holds for a while.
type deadlineTask struct {
	key      string
	left     time.Duration // from when the key is free to the deadline, or less
	deadline time.Time
}

// deadlineTasks holds keys in another process, and enqueues a task for each of them. Half of the
// holders have died, and nothing says when their leases end.
func deadlineTasks(t *testing.T, s *aqSite, opts ...guardasynq.Option) (tasks []deadlineTask) {
	t.Helper()
	const ttl = 4 * time.Second
	elsewhere := s.newGuard(t)
	m := s.middlewareOf(t, elsewhere, guardasynq.FromJSON("key"), opts...)
	held, end, now := make(chan string), make(chan struct{}), make(chan struct{})
	close(now)
	hold := func(key string, until <-chan struct{}) (stored string, ended chan struct{}) {
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			_ = m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				lease, _ := guard.FromContext(ctx)
				held <- lease.Key()
				<-until
				return nil
			})).ProcessTask(context.Background(), asynq.NewTask("import", []byte(aqJSON(key, "holder"))))
		}()
		return <-held, ended
	}
	var enqueue []func(free time.Time)
	for seconds := 2; seconds <= 10; seconds++ {
		for _, attempts := range []int{0, 3} {
			for _, dead := range []bool{true, false} {
				key := fmt.Sprintf("%d s, MaxRetry %d, dead %t", seconds, attempts, dead)
				if dead {
					stored, ended := hold(key, now)
					<-ended
					deadHolder(t, s, stored, ttl)
				} else {
					hold(key, end)
				}
				enqueue = append(enqueue, func(free time.Time) {
					left := time.Duration(seconds) * time.Second
					// asynq has whole seconds
					deadline := free.Add(left).Truncate(time.Second).Add(time.Second)
					s.enqueue(t, "import", aqJSON(key, ""), asynq.Deadline(deadline), asynq.MaxRetry(attempts), asynq.Retention(time.Hour))
					tasks = append(tasks, deadlineTask{key, left, deadline})
				})
			}
		}
	}
	free := time.Now().Add(ttl)
	time.AfterFunc(ttl, func() { close(end) })
	for _, f := range enqueue {
		f(free)
	}
	return tasks
}

// asynq gives no task to a worker after its Deadline.
func TestWeekly_deadlineATaskWhoseKeyIsFreeBeforeItRuns(t *testing.T) {
	redistest.Long(t)
	for server, config := range map[string]asynq.Config{
		"every second":      aqConfig(func(c *asynq.Config) { c.DelayedTaskCheckInterval, c.Concurrency = time.Second, 40 }),
		"every 5 s":         aqConfig(func(c *asynq.Config) { c.DelayedTaskCheckInterval, c.Concurrency = 5*time.Second, 40 }),
		"without Configure": aqPlainConfig(func(c *asynq.Config) { c.DelayedTaskCheckInterval, c.Concurrency = 5*time.Second, 40 }),
	} {
		for name, opts := range map[string][]guardasynq.Option{
			"Requeue":             nil,
			"Requeue, WithDelay":  {guardasynq.WithDelay(time.Minute)},
			"Coalesce":            {guardasynq.WithBusy(guardasynq.Coalesce)},
			"Coalesce, WithDelay": {guardasynq.WithBusy(guardasynq.Coalesce), guardasynq.WithDelay(time.Minute)},
		} {
			t.Run(server+", "+name, func(t *testing.T) {
				t.Parallel()
				s, w := newAqSite(t), newAqWork(t)
				m := s.middlewareOf(t, s.newGuard(t), guardasynq.FromJSON("key"), opts...)
				s.serve(t, config, m(w))
				w.release() // runs take no time
				stalls, began := redistest.WatchStalls(), time.Now()
				defer stalls.Stop()
				tasks := deadlineTasks(t, s, opts...)
				// until asynq has given the last one up
				time.Sleep(time.Until(tasks[len(tasks)-1].deadline))
				ran, held := w.payloads(), stalls.Since(began)
				for _, task := range tasks {
					if task.left-time.Second >= held { // or the machine has used up the time
						assert.Truef(t, slices.Contains(ran, aqJSON(task.key, "")), "%s: it never ran, and the machine held us up for %v", task.key, held)
					}
				}
				slices.Sort(ran)
				require.Len(t, slices.Compact(slices.Clone(ran)), len(ran), "a task ran twice")
			})
		}
	}
}

// The holder of the key has died, so that nothing says when its lease ends, and asynq looks for
// tasks too rarely to bring the task back before its Deadline.
func TestDeadline_aTaskIsBroughtWhenTheLeaseOfADeadHolderEnds(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	t.Cleanup(w.release)
	held := make(chan string, 1)
	m := s.middlewareOf(t, s.newGuard(t), guardasynq.FromJSON("key"))
	require.NoError(t, m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := guard.FromContext(ctx)
		held <- lease.Key()
		return nil
	})).ProcessTask(t.Context(), asynq.NewTask("import", []byte(aqJSON("k", "holder")))))
	deadHolder(t, s, <-held, 2*time.Second)
	s.serve(t, aqConfig(func(c *asynq.Config) { c.DelayedTaskCheckInterval = time.Hour }), s.middleware(t, guardasynq.FromJSON("key"))(w))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.Deadline(time.Now().Add(30*time.Minute)))
	w.next(t).returns(nil)
	s.awaitEmpty(t)
}

// deadHolder takes a key as a process would that dies then.
func deadHolder(t *testing.T, s *aqSite, key string, ttl time.Duration) {
	t.Helper()
	grant, err := single.New(s.rdb).TryAcquire(t.Context(), driver.Claim{Key: "test::" + key, ID: rand.Text(), TTL: ttl})
	require.NoError(t, err)
	require.Equal(t, driver.Granted, grant.State)
}

// The intervals of asynq, and a second, are left before the Deadline.
func TestDeadline_boundsEachDelay(t *testing.T) {
	t.Parallel()
	retry, intervals := asynq.MaxRetry(3), time.Second+20*time.Millisecond
	for name, c := range map[string]struct {
		opts   []guardasynq.Option
		task   []asynq.Option
		soon   bool          // the Deadline is in 3 s, and not in 20 s
		asks   time.Duration // a delay that the handler asks for
		least  time.Duration
		atMost time.Duration
	}{
		"of the lease":       {task: []asynq.Option{retry}, atMost: 20*time.Second - intervals - time.Second},
		"of a copy":          {task: []asynq.Option{asynq.MaxRetry(0)}, atMost: 20*time.Second - intervals - time.Second},
		"WithDelay":          {opts: []guardasynq.Option{guardasynq.WithDelay(time.Hour)}, task: []asynq.Option{retry}, least: 10 * time.Second, atMost: 20*time.Second - intervals - time.Second},
		"of the handler":     {task: []asynq.Option{retry}, asks: time.Hour, least: 10 * time.Second, atMost: 20*time.Second - intervals - time.Second},
		"a shorter one":      {task: []asynq.Option{retry}, asks: 7 * time.Second, least: 7 * time.Second, atMost: 7 * time.Second},
		"of a task too late": {task: []asynq.Option{retry}, soon: true, asks: time.Hour, atMost: 3*time.Second - intervals - time.Second},
		// the next delivery has all of the time again
		"beside a Timeout": {task: []asynq.Option{retry, asynq.Timeout(5 * time.Second), asynq.Deadline(time.Time{})}, asks: time.Hour, least: time.Hour, atMost: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAqSite(t)
			if c.asks == 0 {
				aqElsewhere(t, s, guardasynq.FromType())
			}
			m := s.middleware(t, guardasynq.FromType(), append(c.opts, guardasynq.WithWait(0))...)
			s.serve(t, aqConfig(func(c *asynq.Config) { c.DelayedTaskCheckInterval = time.Second }), m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				return guardasynq.Snooze(c.asks)
			})))
			within := 20 * time.Second
			if c.soon {
				within = 3 * time.Second
			}
			send := func() string {
				return s.enqueue(t, "import", "1", append([]asynq.Option{asynq.Deadline(time.Now().Add(within))}, c.task...)...).ID
			}
			id := send()
			require.Eventually(t, func() bool {
				if info := s.info(t, id); info != nil && (info.State == asynq.TaskStateArchived || info.Retried > 0) {
					id = send() // the machine was too busy to begin before the Deadline
				}
				return len(s.outcomes.of(resultPostponed)) > 0
			}, aqSoon, aqPoll)
			after := s.outcomes.await(t, resultPostponed, 1)[0].After
			require.GreaterOrEqual(t, after, c.least)
			require.LessOrEqual(t, after, c.atMost)
		})
	}
}

// A silentQueue is a Redis of asynq's that refuses to answer, and says nothing when it is silent.
type silentQueue struct{ silent *atomic.Bool }

func (q silentQueue) MakeRedisClient() any {
	return redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if q.silent.Load() {
			<-ctx.Done()
		}
		return nil, errAqOther
	}})
}

// asynq counts a failure, and runs the task again, if it learns of the end of a run too late. With
// Coalesce, the end of a run looks for a follow-up.
func TestDeadline_asynqLearnsOfASuccessInTimeEvenIfItsRedisIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var silent atomic.Bool
		b.queue = silentQueue{&silent}
		m, end := b.middleware(byCustomer, guardasynq.WithBusy(guardasynq.Coalesce))
		defer end()
		start, begun := time.Now(), time.Time{}
		h := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			begun = time.Now()
			silent.Store(true)
			return nil
		}))
		require.NoError(t, <-b.deliver(h, lifeTask{Customer: "c"}, 2*time.Minute))
		require.WithinRange(t, time.Now(), begun.Add(3*time.Second), start.Add(2*time.Minute-500*time.Millisecond), "it waited for its queue")
	})
}

// Another call changes the follow-ups of the key for longer than the task has.
func TestDeadline_aTaskThatCannotBecomeAFollowUpInTimeIsPostponed(t *testing.T) {
	t.Parallel()
	s, w, stops := aqRacing(t)
	s.send(t, "T1")
	first := w.next(t)
	change, err := s.guard.Acquire(t.Context(), aqStored(t, first)+":follow-up")
	require.NoError(t, err)
	defer func() { require.NoError(t, change.Release(context.Background())) }()
	for tries, retried := 2, 1; retried > 0; tries++ {
		require.Less(t, tries, 7, "a busy machine may cost one its attempt")
		id := fmt.Sprint("T", tries)
		got := stops.at(t, id+" change got")
		got.pass()
		s.send(t, id, asynq.Timeout(2*time.Second))
		retried = s.awaitState(t, id, asynq.TaskStateRetry).Retried
	}
	all := s.outcomes.of(resultPostponed)
	require.Less(t, all[len(all)-1].Duration, 2*time.Second)
	first.returns(nil)
}
