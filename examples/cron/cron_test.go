package main

import (
	"maps"
	"slices"
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

// reports returns how often the report of each tick was built.
func reports(replicas ...*processtest.Child) map[string]int {
	built := map[string]int{}
	for _, replica := range replicas {
		for line := range strings.Lines(replica.Said()) {
			_, tick, _ := strings.Cut(line, "the report of ")
			built[strings.TrimSpace(tick)]++
		}
	}
	return built
}

// Each tick runs once, while replicas come and go.
func TestCron_eachTickRunsOnce(t *testing.T) {
	t.Parallel()
	addr, stalls, began := redistest.Start(t).Addr(), redistest.WatchStalls(), time.Now()
	defer stalls.Stop()
	start := func(name string) *processtest.Child {
		return programtest.Start(t, "-redis", addr, "-name", name, "-spec", "@every 1s")
	}
	one, two := start("web-1"), start("web-2")
	require.Eventually(t, func() bool { return len(reports(one, two)) >= 3 }, time.Minute, 10*time.Millisecond)
	one.Kill()
	before := len(reports(one, two))
	require.Eventually(t, func() bool { return len(reports(one, two)) >= before+2 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, two.Signal(syscall.SIGTERM))
	two.Ends()

	built := reports(one, two)
	for tick, n := range built {
		require.Equal(t, 1, n, "runs of %s", tick)
	}
	ticks := slices.Sorted(maps.Keys(built))
	first, err := time.Parse(time.DateTime, ticks[0])
	require.NoError(t, err)
	last, err := time.Parse(time.DateTime, ticks[len(ticks)-1])
	require.NoError(t, err)
	missing := int(last.Sub(first)/time.Second) + 1 - len(ticks)
	require.LessOrEqual(t, missing, 1+int(stalls.Since(began)/time.Second), "the tick at the kill, and those while the machine stood still")
}

func TestCron_refusesASpecThatNeverFires(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), "127.0.0.1:1", "web", "0 0 30 2 *"), "report")
}
