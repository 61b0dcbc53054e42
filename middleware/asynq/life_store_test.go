package guardasynq_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// asynq's Redis goes away when a task has just been found to be busy on its last attempt: only a
// copy can save it.
func TestStore_aCopyIsMadeWhenAsynqsRedisIsBack(t *testing.T) {
	t.Parallel()
	type path struct {
		server *redistest.Server
		proxy  *redistest.Proxy
	}
	for name, c := range map[string]struct{ leave, comeBack func(path) }{
		"frozen": {func(p path) { p.server.Freeze() }, func(p path) { p.server.Thaw() }},
		"dark":   {func(p path) { p.proxy.GoDark() }, func(p path) { p.proxy.Restore() }},
		// the copy is made, but the replies to that and to its first repetitions are lost
		"replies lost": {func(p path) { p.proxy.DropReplyTo("evalsha", 6) }, func(path) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			p := path{s.queue, redistest.StartProxy(t, s.queue.Addr())}
			s.aqQueues = lifeQueue(t, p.proxy.Addr())
			direct := lifeQueue(t, s.queue.Addr()).inspector
			if name == "replies lost" {
				s.inspector = direct
				s.enqueue(t, "so that Redis knows the script", "none", asynq.ProcessIn(time.Hour))
				require.NoError(t, direct.DeleteTask("default", "so that Redis knows the script"))
			}
			var book lifeBook
			h, gate := lifeGated(t, &book)
			byCustomer := guardasynq.FromJSON("customer")
			found, away := make(chan struct{}), make(chan struct{})
			var asked atomic.Int64
			again := guard.WithHook(guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
				if errors.Is(e.Err, guard.ErrBusy) {
					asked.Add(1)
				}
			}})
			byCustomerLate, err := guardasynq.New(s.guard, func(ctx context.Context, task *asynq.Task) (string, error) {
				if id, _ := asynq.GetTaskID(ctx); id == "second" {
					close(found)
					<-away
				}
				return byCustomer(ctx, task)
			}, guardasynq.WithClient(s.client, s.inspector), guardasynq.WithLease(again),
				guardasynq.WithDelay(10*time.Minute), aqObserve(s.seen.add))
			require.NoError(t, err)
			s.serve(t, byCustomerLate(h))
			s.enqueue(t, "first", "one")
			book.awaitRuns(t, "one", 1)
			s.enqueue(t, "second", "one", asynq.MaxRetry(0))
			lifeReceive(t, found, "the second task")
			c.leave(p)
			close(away)
			lifeUntil(t, "its worker tries again", func() bool { return asked.Load() > 1 })
			require.Empty(t, s.seen.of(resultPostponed), "its worker keeps it")
			c.comeBack(p)
			o := s.seen.await(t, resultPostponed, 1)[0]
			require.NotEmpty(t, o.Copy)
			close(gate)
			s.inspector = direct
			require.Zero(t, s.awaitEmpty(t))
			book.requireOnce(t, []string{"first", "second"})
			require.Equal(t, 1, book.together())
		})
	}
}
