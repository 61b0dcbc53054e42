package guardasynq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// enqueueMany enqueues n tasks of the customer, and returns their IDs.
func (s *lifeSite) enqueueMany(t *testing.T, n int, customer string, opts ...asynq.Option) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s %d", customer, i))
		s.enqueue(t, ids[i], customer, opts...)
	}
	return ids
}

// The first of a customer's tasks runs until all tasks of the others are done. The rest of that
// customer's tasks came before those.
func TestSerial_aCustomersTasksDoNotKeepOthersFromTheWorkers(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	var book lifeBook
	gate := make(chan struct{})
	h := book.keep(func(_ context.Context, task *asynq.Task) error {
		if begun, _ := book.runs("one"); lifePayload(task).Customer == "one" && len(begun) == 1 {
			select {
			case <-gate:
			case <-t.Context().Done():
			}
		}
		return nil
	})
	s.serve(t, s.middleware(t, guardasynq.WithDelay(10*time.Minute))(h))
	ids := s.enqueueMany(t, 20, "one")
	book.awaitRuns(t, "one", 1)
	for i := range 20 {
		ids = append(ids, s.enqueueMany(t, 1, fmt.Sprint("other ", i))...)
	}
	for i := range 20 {
		lifeUntil(t, "the others are done", func() bool {
			_, ended := book.runs(fmt.Sprint("other ", i))
			return len(ended) == 1
		})
	}
	begun, _ := book.runs("one")
	require.Len(t, begun, 1)
	close(gate)
	require.Zero(t, s.awaitEmpty(t))
	book.requireOnce(t, ids)
	require.Equal(t, 1, book.together())
}
