package guardcron_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The clocks of three processes are 30 s apart. One is killed in a run, and the store is away for
// five seconds before it is back. The next one freezes in a run for 20 s, while a deployment gives
// the others a spec with half of the ticks. Then the store is away for a minute, and another
// deployment takes place meanwhile.
func TestWeekly_processesMeetSeveralFaultsAtATime(t *testing.T) {
	redistest.Long(t)
	leftout.If(t, os.Getenv(procTicksEnv) == "", "it takes three minutes: proof cron runs it")
	store := redistest.Start(t)
	jobs := []procJob{
		{Name: "instant", Takes: time.Millisecond, Deadline: 40 * time.Second, CatchUp: 3},
		{Name: "longest", Takes: 3 * time.Second, Deadline: 40 * time.Second},
	}
	order, log := procPlace(t, 0, 2*time.Second, jobs...)
	order.Addrs = []string{store.Addr()}
	clocks := map[string]time.Duration{"behind": -15 * time.Second, "right": 0, "ahead": 15 * time.Second}
	processes := map[string]*procChild{}
	start := func(who string) { processes[who] = startProc(t, order.as(who, clocks[who])) }
	deploy := func(but string) (first string) {
		for who := range clocks {
			if who != but {
				next := startProc(t, order.as(who, clocks[who]))
				if first == "" {
					first = who
					time.Sleep(time.Second) // the store has its spec before the next one starts
				}
				require.NoError(t, processes[who].Signal(syscall.SIGTERM))
				<-processes[who].Done()
				processes[who] = next
			}
		}
		return first
	}
	for who := range clocks {
		start(who)
	}
	first := time.Now().Unix() + 17 // by the clock that is ahead

	time.Sleep(3 * time.Second)
	// A tick of another clock would be older than the processes that have to take it over.
	killed := haltARun(t, log, map[string]*procChild{"ahead": processes["ahead"]}, syscall.SIGUSR1)
	<-processes[killed.Who].Done()
	store.Freeze()
	time.Sleep(5 * time.Second) // the store is away
	store.Thaw()
	log.writeFor(t, order, killed.Who, jobs)
	start(killed.Who)

	// Its tick comes later by the other clocks. A process with another spec does not know of it.
	require.Eventually(t, func() bool { return log.read(t).settled(killed.Job, killed.Tick) }, procSoon, 100*time.Millisecond)
	frozen := haltARun(t, log, processes, syscall.SIGUSR2)
	changed := time.Now().Unix() - 17 // by the clock that is behind
	for i := range order.Jobs {
		order.Jobs[i].Spec = "*/2 * * * * *"
	}
	deployed := time.Now()
	// The new spec has ticks from the start of its first process on, but not before the old one.
	replaced := max(deployed.Add(clocks[deploy(frozen.Who)]).Unix()+2, first)
	time.Sleep(20 * time.Second) // it is frozen
	require.NoError(t, processes[frozen.Who].Thaw())
	time.Sleep(3 * time.Second)
	// No other process knows of the ticks of the old spec that none has begun.
	require.Eventually(t, func() bool {
		events := log.read(t)
		for tick := first; tick < changed; tick++ {
			for _, j := range jobs {
				if !events.settled(j.Name, tick*1000) {
					return false
				}
			}
		}
		return true
	}, procSoon, 100*time.Millisecond)
	deploy("")

	store.Freeze()
	time.Sleep(30 * time.Second) // the store is away
	deploy("")
	time.Sleep(30 * time.Second)
	store.Thaw()
	time.Sleep(15 * time.Second)
	last := time.Now().Unix() - 25
	time.Sleep(5 * time.Second)
	for _, p := range processes {
		require.NoError(t, p.Signal(syscall.SIGTERM))
		<-p.Done()
	}

	events := log.read(t)
	for _, j := range jobs {
		ran, reported := 0, 0
		for tick := first; tick <= last; tick++ {
			at := fmt.Sprint(j.Name, " at ", time.Unix(tick, 0).UTC().Format(time.TimeOnly))
			runs, left := events.ran(j.Name, tick*1000), events.left(j.Name, tick*1000)
			kept := events.of(j.Name, tick*1000, "kept") // the store was away when it ended
			require.LessOrEqual(t, len(runs), 1+len(kept), "twice: %s: %+v", at, runs)
			// In between, processes with the old spec may end before they have begun a tick.
			begun := len(events.of(j.Name, tick*1000, "begin")) > 0
			if begun || tick < changed || tick >= replaced && tick%2 == 0 {
				require.NotEmpty(t, append(left, runs...), "neither run nor reported: %s", at)
			}
			ran, reported = ran+min(len(runs), 1), reported+min(len(left), 1)
		}
		t.Logf("%s: of %d ticks %d ran, and others were reported of %d", j.Name, last-first+1, ran, reported)
		require.Greater(t, ran, 3, j.Name)
		events.requireNoTwo(t, j.Name)
	}
	requireTaken(t, events, killed)
}
