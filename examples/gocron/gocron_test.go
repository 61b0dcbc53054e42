package main

import (
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

// startTwo starts two replicas on one Redis.
func startTwo(t *testing.T, args ...string) (all []*processtest.Child) {
	t.Helper()
	addr := redistest.Start(t).Addr()
	for range 2 {
		all = append(all, programtest.Start(t, append(args, "-redis", addr)...))
	}
	return all
}

func reports(replica *processtest.Child) int { return strings.Count(replica.Said(), "report at ") }

func TestElector_anotherReplicaLeadsWhenTheLeaderStops(t *testing.T) {
	t.Parallel()
	all := startTwo(t)
	require.Eventually(t, func() bool { return reports(all[0])+reports(all[1]) >= 3 }, time.Minute, 10*time.Millisecond)
	leader, other := all[0], all[1]
	if reports(other) > 0 {
		leader, other = other, leader
	}
	require.Zero(t, reports(other), "one scheduler runs all ticks")

	require.NoError(t, leader.Signal(syscall.SIGTERM))
	leader.Ends()
	require.Eventually(t, func() bool { return reports(other) > 0 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, other.Signal(syscall.SIGTERM))
	other.Ends()
}

// The minimum hold keeps a scheduler that is a little late from running a tick again.
func TestLocker_oneReplicaRunsATick(t *testing.T) {
	t.Parallel()
	stalls, began := redistest.WatchStalls(), time.Now()
	defer stalls.Stop()
	all := startTwo(t, "-per", "job")
	require.Eventually(t, func() bool { return reports(all[0])+reports(all[1]) >= 3 }, time.Minute, 10*time.Millisecond)
	runs := map[time.Time]int{}
	for _, replica := range all {
		require.NoError(t, replica.Signal(syscall.SIGTERM))
		replica.Ends()
		for line := range strings.Lines(replica.Said()) {
			at, err := time.Parse("report at "+time.DateTime+"\n", line)
			require.NoError(t, err)
			runs[at.Truncate(2*time.Second)]++
		}
	}
	again := 0
	for _, n := range runs {
		again += n - 1
	}
	require.LessOrEqual(t, again, int(stalls.Since(began)/time.Second), "%v", runs)
}

func TestGocron_refusesAnUnknownMode(t *testing.T) {
	t.Parallel()
	require.EqualError(t, run("127.0.0.1:1", "day"), "-per day: must be scheduler or job")
}
