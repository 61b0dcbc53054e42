package guardasynq_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// Two processes with all defaults, and a few customers with many tasks of 100 ms: 2 s of work one
// after the other. A conflict between processes used to cost 10 s and more.
func TestLong_replicasAreNoSlowerThanOneProcess(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	resource := redistest.Start(t)
	s := &lifeStorm{lifeSite: newLifeSite(t), resource: newLifeResource(resource.Client(t), "")}
	s.config = lifeWorkerConfig{
		Queue: s.queue.Addr(), Store: s.store.Addr(), Resource: resource.Addr(), Concurrency: 10, ShutdownTimeout: lifeSoon, Defaults: true,
	}
	const customers, tasks = 6, 120
	for i := range tasks {
		s.enqueue(t, i%customers, lifeTask{Work: 100, Kind: "heeding"})
	}
	all := []*lifeProcess{s.process(t, "first"), s.process(t, "second")}
	for _, p := range all {
		p.Says("ready")
	}
	start := time.Now()
	lifeUntil(t, "all are done", func() bool { return resource.Client(t).SCard(t.Context(), "done").Val() == tasks })
	took := time.Since(start)
	require.Less(t, took, 10*time.Second, "of which 2 s are the work")
	for _, p := range all {
		p.CloseInput()
		p.Ends()
	}
	require.Zero(t, s.awaitEmpty(t))
	worked := map[string]int{}
	for _, w := range s.resource.log(t) {
		require.Empty(t, w.Over, "one at a time for each customer")
		require.False(t, w.Refused)
		if w.Op == "end" {
			worked[w.Process]++
		}
	}
	require.Equal(t, tasks, worked["first"]+worked["second"])
	require.Positive(t, worked["first"])
	require.Positive(t, worked["second"])
	t.Logf("%v; %v", took, worked)
}

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
	s.seen.await(t, resultPostponed)
	time.Sleep(3 * time.Second) // in which it could wait some ten times
	require.Len(t, s.seen.of(resultPostponed), 1)
	close(gate)
	require.Zero(t, s.awaitEmpty(t))
	book.requireOnce(t, []string{"first", "second"})
}
