package guardasynq_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// What one process has postponed comes back when a run ends in another: nothing else would bring
// it for ten minutes.
func TestReplicas_theEndOfARunElsewhereBringsTheNextTask(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string]int{"retries left": 25, "last attempt": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			var book lifeBook
			h, gate := lifeGated(t, &book)
			opts := []guardasynq.Option{guardasynq.WithWait(0), guardasynq.WithDelay(10 * time.Minute)}
			first := s.serve(t, s.middleware(t, opts...)(h))
			s.enqueue(t, "first", "one")
			book.awaitRuns(t, "one", 1)
			first.Stop() // it takes no more tasks
			s.guard = lifeGuard(t, s.store)
			s.serve(t, s.middleware(t, opts...)(h))
			ids := s.enqueueMany(t, 5, "one", asynq.MaxRetry(attempts))
			lifeUntil(t, "the others are postponed", func() bool { return len(s.seen.of(resultPostponed)) == len(ids) })
			close(gate)
			require.Zero(t, s.awaitEmpty(t))
			book.requireOnce(t, append(ids, "first"))
			require.Equal(t, 1, book.together())
		})
	}
}

// A process that has workers to spare brings a task when a run has ended elsewhere, and not again
// and again while the next run lasts.
func TestReplicas_aTaskIsNotBroughtForARunThatGoesOn(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	var book lifeBook
	h, gate := lifeGated(t, &book)
	opts := []guardasynq.Option{guardasynq.WithWait(100 * time.Millisecond), guardasynq.WithDelay(10 * time.Minute)}
	first := s.serve(t, s.middleware(t, opts...)(h))
	s.enqueue(t, "first", "one")
	book.awaitRuns(t, "one", 1)
	first.Stop() // it takes no more tasks
	s.guard = lifeGuard(t, s.store)
	s.serve(t, s.middleware(t, opts...)(h))
	s.enqueue(t, "second", "one")
	s.seen.await(t, resultPostponed, 1)
	time.Sleep(time.Second) // in which it could wait some times
	require.Len(t, s.seen.of(resultPostponed), 1)
	close(gate)
	require.Zero(t, s.awaitEmpty(t))
	book.requireOnce(t, []string{"first", "second"})
}
