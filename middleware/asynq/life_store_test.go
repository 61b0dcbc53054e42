package guardasynq_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

func TestStore_tasksArePostponedWhileTheGuardsRedisIsAway(t *testing.T) {
	t.Parallel()
	away := map[string]struct{ leave, comeBack func(*redistest.Server) }{
		"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw},
	}
	for name, redisAway := range away {
		for attempts, retries := range map[string]int{"retries left": 1, "last attempt": 0} {
			t.Run(name+"/"+attempts, func(t *testing.T) {
				t.Parallel()
				s := newLifeSite(t)
				rdb := s.store.Client(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = 300*time.Millisecond, 300*time.Millisecond })
				g, err := guard.New(single.New(rdb), guard.WithNamespace("test"))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
				s.guard = g
				var book lifeBook
				change, reported := lifeErrors()
				s.serve(t, s.middleware(t)(book.keep(func(ctx context.Context, _ *asynq.Task) error {
					if n, _ := asynq.GetRetryCount(ctx); n > 0 {
						return fmt.Errorf("has cost %d attempts", n) // and it is archived
					}
					return nil
				})), change)
				redisAway.leave(s.store)
				ids := s.enqueueMany(t, 5, "one", asynq.MaxRetry(retries))
				lifeUntil(t, "each is postponed more than once", func() bool { return len(s.seen.of(resultUnavailable)) > 10 })
				err = lifeReceive(t, reported, "an error")
				var postponed *guardasynq.PostponedError
				require.ErrorAs(t, err, &postponed)
				require.ErrorIs(t, err, guard.ErrStore)
				require.NotErrorIs(t, err, guard.ErrBusy)
				require.Equal(t, retries == 0, postponed.Copy != "")
				redisAway.comeBack(s.store)
				require.Zero(t, s.awaitEmpty(t))
				book.requireOnce(t, ids)
				require.Equal(t, 1, book.together())
			})
		}
	}
}

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
			s.client, s.inspector = lifeQueue(t, p.proxy.Addr())
			_, direct := lifeQueue(t, s.queue.Addr())
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
			o := s.seen.await(t, resultPostponed)
			require.NotEmpty(t, o.Copy)
			close(gate)
			s.inspector = direct
			require.Zero(t, s.awaitEmpty(t))
			book.requireOnce(t, []string{"first", "second"})
			require.Equal(t, 1, book.together())
		})
	}
}

func TestClose_aGuardThatIsClosedBeforeItsServerLosesNothing(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"retries left": 1, "last attempt": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			var book lifeBook
			h := book.keep(func(context.Context, *asynq.Task) error { return nil })
			change, reported := lifeErrors()
			closed := s.serve(t, s.middleware(t)(h), change)
			require.NoError(t, s.guard.Close(t.Context()))
			ids := s.enqueueMany(t, 5, "one", asynq.MaxRetry(retries))
			lifeUntil(t, "all are postponed", func() bool { return len(s.seen.of(resultUnavailable)) >= 5 })
			require.ErrorIs(t, lifeReceive(t, reported, "an error"), guard.ErrClosed)
			closed.Shutdown()
			s.guard = lifeGuard(t, s.store)
			s.serve(t, s.middleware(t)(h))
			require.Zero(t, s.awaitEmpty(t))
			book.requireOnce(t, ids)
		})
	}
}
