package guardasynq_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// The recipe of docs/asynq.md: a longest hold ends the handler's context, and frees the key even if
// the handler hangs. It does not postpone the task: a retry at no cost would hang again.
func TestMaxHold_freesTheKeyOfAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	perTask := func(_ context.Context, task *asynq.Task) []guard.Option {
		if task.Type() == "charge" {
			return []guard.Option{guard.WithMaxHold(10 * time.Second)}
		}
		return nil
	}
	for title, opt := range map[string]guardasynq.Option{
		"for all tasks": guardasynq.WithLease(guard.WithMaxHold(10 * time.Second)),
		"for a type":    guardasynq.WithTaskLease(perTask),
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, b *bubble) {
				m, end := b.middleware(guardasynq.FromPayload(), opt)
				defer end()
				var cause error
				var ended, next time.Duration
				begun, hangs := time.Now(), make(chan struct{})
				first := true
				h := m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					if !first {
						next = time.Since(begun)
						return nil
					}
					first = false
					<-ctx.Done()
					cause, ended = context.Cause(ctx), time.Since(begun)
					<-hangs
					return ctx.Err()
				}))
				deliver := func() <-chan error {
					returned := make(chan error, 1)
					go func() {
						returned <- h.ProcessTask(b.base(context.Background()), asynq.NewTask("charge", []byte("alice")))
					}()
					return returned
				}
				hung := deliver()
				synctest.Wait()
				require.Error(t, <-deliver(), "the key is busy")
				time.Sleep(30 * time.Second) // virtual time: a lease has ended, at the latest
				require.NoError(t, <-deliver(), "the next task of the key")
				close(hangs)
				err := <-hung
				require.ErrorIs(t, err, guard.ErrLost)
				require.False(t, guardasynq.IsPostponed(&asynq.TaskInfo{State: asynq.TaskStateRetry, LastErr: err.Error()}), "it costs an attempt")
				var lost *guard.LostError
				require.ErrorAs(t, cause, &lost)
				require.Equal(t, guard.LossMaxHold, lost.Reason)
				require.LessOrEqual(t, ended, 10*time.Second)
				require.GreaterOrEqual(t, next, ended, "not before the first one's context has ended")
			})
		})
	}
}
