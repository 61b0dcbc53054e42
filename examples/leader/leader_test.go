package main

import (
	"fmt"
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

// A reading is a line that a replica has printed about an item.
type reading struct {
	name       string
	item, term uint64
}

// readings returns what the replicas have read, by item.
func readings(replicas ...*processtest.Child) (all []reading) {
	for _, replica := range replicas {
		for line := range strings.Lines(replica.Said()) {
			var r reading
			if n, _ := fmt.Sscanf(line, "%s read item %d in term %d\n", &r.name, &r.item, &r.term); n == 3 {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b reading) int { return int(a.item) - int(b.item) })
	return all
}

// One replica reads at a time, whatever happens to it, and the next goes on where it was.
func TestLeader_oneReplicaReads(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	replicas := map[string]*processtest.Child{}
	var all []*processtest.Child
	start := func(name string) {
		replicas[name] = programtest.Start(t, "-redis", addr, "-name", name, "-ttl", "1s")
		all = append(all, replicas[name])
	}
	// next waits until a replica reads in a later term than the last.
	var last reading
	next := func() *processtest.Child {
		t.Helper()
		require.Eventually(t, func() bool {
			read := readings(all...)
			return len(read) > 0 && read[len(read)-1].term > last.term
		}, time.Minute, 10*time.Millisecond)
		read := readings(all...)
		last = read[len(read)-1]
		return replicas[last.name]
	}

	start("web-1")
	leader := next()
	start("web-2")
	require.NoError(t, leader.Signal(syscall.SIGTERM))
	leader.Ends()
	require.NotSame(t, leader, next())

	start("web-1")
	leader = replicas["web-2"]
	leader.Says("web-2 leads in term ")
	require.NoError(t, leader.Freeze())
	for next() == leader { // it had led again before
	}
	require.NoError(t, leader.Thaw())
	leader.Says("web-2 leads no more: ")

	leader = replicas["web-1"]
	leader.Kill()
	for next() == leader {
	}
	require.NoError(t, replicas["web-2"].Signal(syscall.SIGTERM))
	replicas["web-2"].Ends()

	read := readings(all...)
	for i, r := range read[1:] {
		require.Greater(t, r.item, read[i].item, "no item is read twice")
		require.LessOrEqual(t, r.item, read[i].item+2, "an item that was read before a kill may not be printed")
		require.GreaterOrEqual(t, r.term, read[i].term, "nobody reads after a later leader")
	}
}

// A leader whose term is over cannot take an item.
func TestAdvance_refusesAnEarlierTerm(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	const term = uint64(1) << 51 // as large as terms are
	for _, take := range []struct{ term, want uint64 }{
		{term, 1}, {term, 2}, {term + 1, 3}, {term, 0}, {term + 1, 4}, {term - 1, 0}, {term + 2, 5},
	} {
		got, err := advance.Run(t.Context(), rdb, []string{"feed"}, take.term).Uint64()
		require.NoError(t, err)
		require.Equal(t, take.want, got, "term %d", take.term)
	}
}

func TestLeader_refusesABadTTL(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), "127.0.0.1:1", "web", -time.Second), "TTL")
}
