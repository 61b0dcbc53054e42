package faults_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// A row is a fault of the plan.
type row struct {
	number   int
	name     string
	backends []string
	// window marks faults that leases cannot prevent: beliefs may overlap, which must be found out
	// and fenced.
	window bool
	// forgets marks faults in which the store loses what it has granted, or its clock jumps: that
	// its answers are then not those of a lease is what the fault is, so porcupine is not asked.
	forgets bool
	// ci are the backends on which the short form runs the row: all of them if a process or a
	// server is killed, stopped or cut off, or else one of them.
	ci      []string
	beliefs int      // the least that there have to be; 3 if it is less
	args    []string // for the servers
	clocks  bool     // the servers have clocks that can be moved
	slow    bool     // sentinels talk as seldom as they usually do
	path    bool     // sentinels reach the master by a path of their own
	// by backend, or "" for all others: a regular expression for the metric that shows it, or ""
	// for what nobody needs to see
	shows map[string]string
	run   func(s *scene)
}

var (
	one      = []string{"single", "reentrant"}
	quorum   = []string{"redlock"}
	everyone = []string{"single", "reentrant", "redlock"}
)

// rowLists are those of all files that have some.
var rowLists = [][]row{processRows, serverRows, replyRows, keyRows, quorumRows, clientRows, refusalRows, forgetfulRows, slotRows, waiterRows, wallClockRows, sharingRows}

const (
	// allEnv, when it is set to "all", has all rows run on all their backends, and not only those
	// that are marked for CI.
	allEnv = "ONERUN_FAULTS"
	// reportEnv names a file for the report, beside stdout.
	reportEnv = "ONERUN_FAULTS_REPORT"
)

// ofQuorum is for how many rows a row counts whose backend has five servers.
const ofQuorum = 2

// atOnce is how many rows are run at the same time, two processors being half idle then: four, or
// two in proof fault, which has the race detector.
func atOnce() int {
	if os.Getenv(allEnv) == "all" {
		return 2
	}
	return 4
}

func TestFaults(t *testing.T) {
	var all report
	places := semaphore.NewWeighted(int64(atOnce()))
	t.Run("rows", func(t *testing.T) {
		for _, list := range rowLists {
			for _, r := range list {
				for _, backend := range r.backends {
					if !slices.Contains(r.ci, backend) && os.Getenv(allEnv) != "all" {
						continue
					}
					t.Run(fmt.Sprintf("%02d %s/%s", r.number, r.name, backend), func(t *testing.T) {
						t.Parallel()
						weight := int64(1)
						if backend == "redlock" {
							weight = ofQuorum
						}
						require.NoError(t, places.Acquire(t.Context(), weight))
						t.Cleanup(func() { places.Release(weight) }) // after the servers have ended
						runRow(t, r, backend, &all)
					})
				}
			}
		}
	})
	var text strings.Builder
	all.print(&text)
	fmt.Println(text.String())
	if name := os.Getenv(reportEnv); name != "" {
		require.NoError(t, os.WriteFile(name, []byte(text.String()), 0o600))
	}
}

// runRow runs the row on the backend and adds what comes out to the report: also if the test fails
// on the way.
func runRow(t *testing.T, r row, backend string, all *report) {
	t.Helper()
	out := &result{row: r, backend: backend, failures: []string{"it did not come to its end, see above"}}
	defer func() { all.add(out) }()
	begun := time.Now()
	s := newScene(t, r, backend)
	started := time.Since(begun)
	r.run(s)
	ran := time.Since(begun)
	s.calm()
	calm := time.Since(begun)
	last, events := s.finish()
	ended := time.Since(begun)
	out = s.judge(last, events)
	t.Logf("%v started %v, ran %v, calm %v, ended %v, judged %v", out, started, ran, calm, ended, time.Since(begun))
	if len(out.failures) > 0 {
		t.Errorf("%s", strings.Join(out.failures, "\n"))
		s.logEvents(events)
	}
}
