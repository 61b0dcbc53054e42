package guardcron_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The length of the long test in ticks of a second. Its faults last longer, too. Two minutes:
//
//	ONERUN_CRON_TICKS=120 go test -race -run TestWeekly_processes -timeout 10m ./middleware/cron/
const (
	procTicksEnv = "ONERUN_CRON_TICKS"
	procTicks    = 36
)

// The clocks of three processes: 900 ms between the first and the last.
var procClocks = []time.Duration{-450 * time.Millisecond, 0, 450 * time.Millisecond}

// procDeadline is so long that hardly a tick is too late on a machine that is busy with something
// else: each is run, or skipped because of an earlier one.
const procDeadline = time.Minute

var procJobs = []procJob{
	{Name: "instant", Takes: time.Millisecond, Deadline: procDeadline},
	{Name: "short", Takes: 300 * time.Millisecond, Deadline: procDeadline},
	{Name: "long", Takes: 1500 * time.Millisecond, Deadline: procDeadline},
	{Name: "longest", Takes: 3 * time.Second, Deadline: procDeadline},
	{Name: "waits", Takes: 300 * time.Millisecond, Deadline: procDeadline, Overlap: guardcron.Wait},
	{Name: "fails", Takes: 10 * time.Millisecond, FailEach: 5, Deadline: procDeadline},
}

// Three processes have clocks that differ by up to 900 ms. One process is killed, one is paused,
// and each is replaced as in a rolling deployment.
func TestProcesses_runEachTickOnce(t *testing.T) {
	t.Parallel()
	// ticks are seconds of real time: the processes have clocks of their own
	requireEachTickOnce(t, 1, 10, procJobs)
}

func TestWeekly_processesRunEachTickOnce(t *testing.T) {
	redistest.Long(t)
	ticks := procTicks
	if n, err := strconv.Atoi(os.Getenv(procTicksEnv)); err == nil {
		ticks = n
	}
	requireEachTickOnce(t, 1, ticks, procJobs)
}

func TestWeekly_processesRunEachTickOnceOverARedLock(t *testing.T) {
	redistest.Long(t)
	requireEachTickOnce(t, 3, 20, []procJob{procJobs[0], procJobs[3]})
}

func requireEachTickOnce(t *testing.T, nodes, ticks int, jobs []procJob) {
	order, log := procPlace(t, nodes, 2*time.Second, jobs...)
	processes := map[string]*procChild{}
	for i, ahead := range procClocks {
		who := fmt.Sprint("process ", i)
		processes[who] = startProc(t, order.as(who, ahead))
	}
	first := time.Now().Unix() + 2
	last := first + int64(ticks) - 1
	at := func(tick int) { untilTick(first+int64(tick), 0) }

	at(ticks / 10)
	killed := haltARun(t, log, processes, syscall.SIGUSR1)
	<-processes[killed.Who].Done()
	log.writeFor(t, order, killed.Who, jobs)
	processes[killed.Who] = startProc(t, order.as(killed.Who, processes[killed.Who].order.Ahead))

	at(ticks * 3 / 10)
	paused := haltARun(t, log, processes, syscall.SIGUSR2)
	log.await(t, "a newer run", func(e procEvent) bool { return e.Kind == "begin" && e.Job == paused.Job && e.Fence > paused.Fence })
	require.NoError(t, processes[paused.Who].Thaw())

	at(ticks * 6 / 10)
	for i, ahead := range procClocks {
		who := fmt.Sprint("process ", i)
		next := startProc(t, order.as("new "+who, ahead))
		processes[who].stop(t)
		processes[who] = next
	}
	at(ticks)
	require.EventuallyWithT(t, func(c *assert.CollectT) { // runs that wait for another one
		events := log.read(t)
		assert.True(c, events.settled(killed.Job, killed.Tick))
		assert.True(c, events.settled(paused.Job, paused.Tick))
		for _, j := range jobs {
			assert.NotEmpty(c, events.ran(j.Name, 0), j.Name)
			for tick := first; tick <= last; tick++ {
				if !events.settled(j.Name, tick*1000) {
					assert.Fail(c, "neither run nor reported", "%s at %d: %+v", j.Name, tick,
						events.of(j.Name, tick*1000, "begin", "end", "failed", "broken", "record", "here"))
				}
			}
		}
	}, 3*procSoon, 100*time.Millisecond)
	for _, p := range processes {
		p.stop(t)
	}

	events := log.read(t)
	w, err := newProcWorker(order.as("reader", 0))
	require.NoError(t, err)
	defer func() { require.NoError(t, w.close(procSoon)) }()
	for _, j := range jobs {
		records, err := w.jobs.Records(context.Background(), j.Name, 1500)
		require.NoError(t, err)
		var ran, left, missed int
		for tick := first; tick <= last; tick++ {
			events.requireTick(t, j.Name, tick*1000)
			events.requireRecords(t, records, j.Name, tick*1000)
			ran += len(events.ran(j.Name, tick*1000))
			left += len(events.left(j.Name, tick*1000))
			missed += len(events.of(j.Name, tick*1000, "missed"))
		}
		events.requireNoTwo(t, j.Name)
		t.Logf("%s: %d of %d ticks run, %d records of other outcomes, %d of them missed", j.Name, ran, ticks, left, missed)
	}
	requireTaken(t, events, killed)
	requireTaken(t, events, paused)
	var late, lost int
	for _, e := range events.of("longest", paused.Tick, "broken", "end", "record") {
		if e.Fence == paused.Fence && e.Kind == "record" {
			require.Equal(t, string(guardcron.Lost), e.Result)
			lost++
		} else if e.Fence == paused.Fence {
			require.True(t, e.Refused, "the write of a run that has lost its lease")
			late++
		}
	}
	require.Equal(t, []int{1, 1}, []int{late, lost}, "writes and records of the run that was paused")
}

// haltARun has a process die or freeze in the middle of a run of the longest job, and returns that
// run's beginning.
func haltARun(t *testing.T, log *procLog, processes map[string]*procChild, s syscall.Signal) (begun procEvent) {
	t.Helper()
	lines := len(log.read(t))
	isBegin := func(e procEvent) bool { return e.Kind == "begin" && e.Job == "longest" && processes[e.Who] != nil }
	begun = log.awaitAfter(t, lines, "a run", isBegin)
	require.NoError(t, processes[begun.Who].Signal(s))
	isHalt := func(e procEvent) bool { return e.Who == begun.Who && (e.Kind == "dies" || e.Kind == "freezes") }
	log.awaitAfter(t, lines, "the end of "+begun.Who, isHalt)
	for _, e := range log.read(t)[lines:] {
		switch {
		case isHalt(e):
			return begun
		case isBegin(e) && e.Who == begun.Who:
			begun = e // on a busy machine, the one before has ended
		}
	}
	panic("unreachable")
}

// requireTaken fails unless another process took over the tick of a run that was halted, or left
// it out, with a reason.
func requireTaken(t *testing.T, events procEvents, halted procEvent) {
	t.Helper()
	for _, e := range events.ran(halted.Job, halted.Tick) {
		require.Greater(t, e.Fence, halted.Fence)
	}
	require.True(t, events.settled(halted.Job, halted.Tick))
}
