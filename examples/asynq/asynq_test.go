package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/programtest"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// startWorkers starts two workers on one Redis.
func startWorkers(t *testing.T) (addr string, workers [2]*processtest.Child) {
	t.Helper()
	addr = redistest.Start(t).Addr()
	for i := range workers {
		workers[i] = programtest.Start(t, "-redis", addr, "-work")
		workers[i].Says("working")
	}
	return addr, workers
}

// said returns how often all workers have said a line.
func said(workers [2]*processtest.Child, line string) int {
	return strings.Count(workers[0].Said(), line+"\n") + strings.Count(workers[1].Said(), line+"\n")
}

// The charges of a customer never overlap, on whichever workers they are.
func TestCharge_oneOfACustomerAtATime(t *testing.T) {
	t.Parallel()
	addr, workers := startWorkers(t)
	programtest.Start(t, "-redis", addr, "-charge", "alice,alice,bob,alice").Ends()
	deadline := time.Now().Add(time.Minute)
	for ended := 0; ended < 3; {
		begun, look := 0, time.Now()
		ended = 0
		for _, number := range []int{1, 2, 4} {
			// first: what ends in between has begun
			ended += said(workers, fmt.Sprint("end alice ", number))
			begun += said(workers, fmt.Sprint("begin alice ", number))
		}
		if time.Since(look) < time.Second { // a charge takes two
			require.LessOrEqual(t, begun-ended, 2, "one runs, and one may have begun between the two looks")
		}
		require.True(t, time.Now().Before(deadline), "%d have ended", ended)
		time.Sleep(5 * time.Millisecond)
	}
	require.Equal(t, 1, said(workers, "end bob 3"))
	for i, worker := range workers {
		requireNoOverlap(t, worker.Said(), i)
	}
}

// requireNoOverlap fails if a worker has begun a charge of alice before the last one had ended.
func requireNoOverlap(t *testing.T, said string, worker int) {
	t.Helper()
	running := 0
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "begin alice") {
			running++
		}
		if strings.HasPrefix(line, "end alice") {
			running--
		}
		require.LessOrEqual(t, running, 1, "worker %d: %s", worker, said)
	}
}

// A worker that stops leaves its charge to the other one.
func TestCharge_anotherWorkerTakesOver(t *testing.T) {
	t.Parallel()
	addr, workers := startWorkers(t)
	programtest.Start(t, "-redis", addr, "-charge", "alice").Ends()
	require.Eventually(t, func() bool { return said(workers, "begin alice 1") == 1 }, time.Minute, 10*time.Millisecond)
	first, other := workers[0], workers[1]
	if strings.Contains(other.Said(), "begin") {
		first, other = other, first
	}
	require.NoError(t, first.Signal(syscall.SIGTERM)) // as asynq shuts down, it gives the task back
	first.Ends()
	other.Says("end alice 1")
	require.NotContains(t, first.Said(), "end alice 1")
}
