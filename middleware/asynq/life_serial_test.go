package guardasynq_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// lifeBusy adds up for how long workers are busy with the tasks of each customer, whether they run
// or are postponed.
type lifeBusy struct {
	mu  sync.Mutex
	sum map[string]time.Duration
}

func (b *lifeBusy) watch(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		start := time.Now()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.sum == nil {
				b.sum = map[string]time.Duration{}
			}
			b.sum[lifePayload(task).Customer] += time.Since(start)
		}()
		return next.ProcessTask(ctx, task)
	})
}

// enqueueMany enqueues n tasks of the customer, and returns their IDs.
func (s *lifeSite) enqueueMany(t *testing.T, n int, customer string, opts ...asynq.Option) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s %d", customer, i))
		s.enqueue(t, ids[i], customer, opts...)
	}
	return ids
}

func TestSerial_aCustomersTasksDoNotKeepOthersFromTheWorkers(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	const work = 50 * time.Millisecond
	ids := s.enqueueMany(t, 100, "one")
	for i := range 200 {
		ids = append(ids, s.enqueueMany(t, 1, fmt.Sprint("other ", i))...)
	}
	var book lifeBook
	var busy lifeBusy
	start := time.Now()
	s.serve(t, busy.watch(s.middleware(t, guardasynq.WithDelay(5*time.Second))(book.keep(func(context.Context, *asynq.Task) error {
		time.Sleep(work) // the work
		return nil
	}))), func(c *asynq.Config) { c.Concurrency = 10 })
	require.Zero(t, s.awaitEmpty(t))
	all := time.Since(start)
	book.requireOnce(t, ids)
	require.Equal(t, 1, book.together())
	require.GreaterOrEqual(t, all, 100*work)

	_, ended := book.runs("one")
	last, before := time.Time{}, 0
	for i := range 200 {
		_, other := book.runs(fmt.Sprint("other ", i))
		if other[0].at.After(last) {
			last = other[0].at
		}
	}
	for _, e := range ended {
		if e.at.Before(last) {
			before++
		}
	}
	require.Less(t, before, 80, "the others were done by then")
	busy.mu.Lock()
	defer busy.mu.Unlock()
	// One runs, and a worker that postpones a task waits for a CPU on a busy machine.
	require.Less(t, busy.sum["one"], 4*all, "on average, less than four of ten workers are busy with the one customer")
	t.Logf("%v in all; the others after %v, with %d of the hundred; %.2f workers busy with those; %d times postponed",
		all, last.Sub(start), before, busy.sum["one"].Seconds()/all.Seconds(), len(s.seen.of(resultPostponed)))
}
