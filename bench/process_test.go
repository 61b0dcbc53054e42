package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// jobEnv makes the test binary a worker process: it holds the job.
const jobEnv = "ONERUN_BENCH_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(replicaEnv); text != "" {
		serveReplica(text)
		return
	}
	if text := os.Getenv(memberEnv); text != "" {
		fleettest.Serve(text, openMember)
		return
	}
	if text := os.Getenv(jobEnv); text != "" {
		work(text)
		return
	}
	redistest.AtOnce(6)
	os.Exit(m.Run())
}

// startProcess returns when the worker is ready: connected, and with the scripts known to the
// server.
func startProcess(t testing.TB, j job) *processtest.Child {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	p := processtest.Self(t, jobEnv+"="+string(text))
	require.Equal(t, "ready", p.Next())
	return p
}

// result waits for the worker's outcome.
func result(t testing.TB, p *processtest.Child) (o outcome) {
	t.Helper()
	text := p.Next()
	require.NoError(t, json.Unmarshal([]byte(text), &o), text)
	require.Empty(t, o.Error)
	return o
}

// race has so many processes do the job at the same time.
func race(t testing.TB, processes int, j job, begin func()) (all []outcome) {
	t.Helper()
	var workers []*processtest.Child
	for range processes {
		workers = append(workers, startProcess(t, j))
	}
	begin()
	for _, w := range workers {
		w.Tell("go")
	}
	for _, w := range workers {
		all = append(all, result(t, w))
	}
	return all
}

// BenchmarkProcesses has processes with 4 callers each that want one key for a while: what
// BenchmarkContended shows with several clients in one process, with real ones. It is one
// measurement, however large b.N is.
func BenchmarkProcesses(b *testing.B) {
	server := redistest.Start(b)
	counts, span := []int{1, 4, 16}, 3*time.Second
	if testing.Short() {
		counts, span = []int{2}, 200*time.Millisecond
	}
	for _, processes := range counts {
		for _, i := range impls {
			b.Run(fmt.Sprintf("impl=%s/processes=%d", i.name, processes), func(b *testing.B) {
				j := job{Impl: i.name, Addr: server.Addr(), Key: keys()(0), Callers: 4, For: span}
				var count func() int64
				results := race(b, processes, j, func() { count = counted(b, i.sends, []*redistest.Server{server}) })
				commands := count()
				done, minShare, served := fairness(shares(results))
				if done == 0 {
					b.Logf("nobody got on in %v", span)
					b.ReportMetric(0, "ns/op") // which leaves it out
					return
				}
				b.ReportMetric(float64(span.Nanoseconds())/float64(done), "ns/op")
				b.ReportMetric(float64(commands)/float64(done), "cmds/pair")
				b.ReportMetric(minShare, "min-share")
				b.ReportMetric(served, "served")
			})
		}
	}
}

func shares(results []outcome) (shares [][]int) {
	for _, o := range results {
		shares = append(shares, o.Pairs)
	}
	return shares
}

// What BenchmarkContended takes for processes are lockers in one; these are processes. Each holder
// reads a counter in Redis and writes it back one higher, which would lose counts if there were
// two, and shows its fence, which has to be above all that were shown before.
func TestProcesses_excludeEachOther(t *testing.T) {
	server := redistest.Start(t)
	const processes, span = 4, 2 * time.Second
	for _, name := range []string{"onerun", "reentrant"} {
		t.Run(name, func(t *testing.T) {
			j := job{Impl: name, Addr: server.Addr(), Key: keys()(0), Callers: 4, For: span, Audit: "audit:" + name}
			results := race(t, processes, j, func() {})
			done, minShare, served := fairness(shares(results))
			t.Logf("%d pairs by %d processes in %v; the one with fewest has %.2f of its fair share, and %.0f %% of the callers got any",
				done, processes, span, minShare, 100*served)
			rdb := server.Client(t)
			counted, err := rdb.Get(context.Background(), j.Audit+":count").Int()
			require.NoError(t, err)
			require.Equal(t, done, counted, "no count is lost")
			for _, o := range results {
				require.Zero(t, o.Stale, "fences that were not above all before")
			}
			require.Positive(t, minShare, "each process had its turn")
		})
	}
}
