package guardscheduler_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The clocks of three processes are 30 s apart. One is killed, and the store is away for five
// seconds before it is back. Another one freezes for 20 s, while a deployment gives the others a
// spec with half of the ticks. Then the store is away for a minute, and another deployment takes
// place meanwhile.
func TestLong_schedulerProcessesMeetSeveralFaultsAtATime(t *testing.T) {
	redistest.Long(t)
	leftout.If(t, os.Getenv("ONERUN_CRON_TICKS") == "", "it takes two minutes: proof cron runs it")
	server := redistest.Start(t)
	order := schedulerOrder{Addr: server.Addr(), TTL: 2 * time.Second, CatchUp: 1000, Entries: []schedulerEntry{{"@every 1s", "second", "default"}}}
	clocks := []time.Duration{-15 * time.Second, 0, 15 * time.Second}
	workers := make([]*schedulerWorker, len(clocks))
	start := func(i int) *schedulerWorker {
		order.Ahead = clocks[i]
		return startScheduler(t, order)
	}
	deploy := func(but int) {
		for i, old := range workers {
			if i != but {
				workers[i] = start(i)
				require.NoError(t, old.Signal(syscall.SIGTERM))
				<-old.Done()
			}
		}
	}
	for i := range clocks {
		workers[i] = start(i)
	}
	first := nextSecond().Add(clocks[2] + time.Second)

	until(nextSecond().Add(3 * time.Second))
	workers[2].Kill() // the one that enqueues
	server.Freeze()
	time.Sleep(5 * time.Second) // the store is away
	server.Thaw()
	workers[2] = start(2)

	until(nextSecond().Add(3 * time.Second))
	require.NoError(t, workers[2].Freeze())
	order.Entries[0].Spec = "@every 2s"
	deploy(2)
	time.Sleep(20 * time.Second) // it is frozen
	require.NoError(t, workers[2].Thaw())
	time.Sleep(3 * time.Second)
	deploy(-1)

	server.Freeze()
	time.Sleep(30 * time.Second) // the store is away
	deploy(-1)
	time.Sleep(30 * time.Second)
	server.Thaw()
	time.Sleep(10 * time.Second)
	last := nextSecond().Add(clocks[0])

	in := inspect(t, server.Addr())
	even := first.Add(time.Second).Truncate(2 * time.Second) // of both specs
	requireTicks(t, even, int(last.Sub(even)/(2*time.Second)), 2*time.Second, func() map[time.Time]int {
		return pendingTicks(t, in, "default", "second")
	})
	for _, w := range workers {
		w.stop(t)
	}
}
