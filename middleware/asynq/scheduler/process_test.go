package guardscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// One tick each second, while one of three processes is killed, one is replaced as in a rolling
// deployment, and one is paused. An entry with a cron spec has a tick each minute, and another each
// minute of this hour in a time zone. There is one whole minute in the time of the test.
func TestWeekly_schedulerProcessesEnqueueEachTickOnce(t *testing.T) {
	redistest.Long(t)
	const ticks = 32
	server := redistest.Start(t)
	local := time.Now().In(tickZone(t, "Asia/Kolkata"))
	order := schedulerOrder{Addr: server.Addr(), Zone: "Asia/Kolkata", TTL: 2 * time.Second, Entries: []schedulerEntry{
		{"@every 1s", "second", "default"},
		{"* * * * *", "minute", "default"},
		{fmt.Sprintf("* %d,%d * * *", local.Hour(), local.Add(3*time.Minute).Hour()), "hour", "default"},
	}}
	workers := []*schedulerWorker{startScheduler(t, order), startScheduler(t, order), startScheduler(t, order)}
	now := time.Now()
	until(now.Truncate(time.Minute).Add((60 - ticks + 1) * time.Second)) // or at once
	first := nextSecond()
	at := func(tick int, into time.Duration) { until(first.Add(time.Duration(tick)*time.Second + into)) }

	at(8, 2*time.Millisecond) // in the middle of enqueueing, if it has won the tick
	workers[0].Kill()
	workers[0] = startScheduler(t, order)
	at(16, 2*time.Millisecond)
	deployed := startScheduler(t, order)
	workers[1].stop(t)
	workers[1] = deployed
	at(22, 2*time.Millisecond)
	require.NoError(t, workers[2].Freeze())
	at(27, 500*time.Millisecond)
	require.NoError(t, workers[2].Thaw())
	at(ticks, 0)

	in := inspect(t, server.Addr())
	requireTicks(t, first, ticks, time.Second, func() map[time.Time]int { return pendingTicks(t, in, "default", "second") })
	whole := first.Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
	for _, kind := range []string{"minute", "hour"} {
		requireTicks(t, whole, 1, time.Minute, func() map[time.Time]int { return pendingTicks(t, in, "default", kind) })
	}
	for _, w := range workers {
		w.stop(t)
	}
}

// Tasks are handled and forgotten at once, so that their IDs keep nothing out.
func TestLong_schedulerProcessesEnqueueOnceAlsoWhatIsHandledAtOnce(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := redistest.Start(t)
	var mu sync.Mutex
	runs := map[time.Time]int{}
	consumer := asynq.NewServer(asynq.RedisClientOpt{Addr: server.Addr()}, asynq.Config{LogLevel: asynq.ErrorLevel, TaskCheckInterval: 5 * time.Millisecond})
	require.NoError(t, consumer.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		defer mu.Unlock()
		runs[tickOf(t, id)]++
		return nil
	})))
	t.Cleanup(consumer.Shutdown)
	// A process that stalls between the enqueueing and the marker for longer than its lease would
	// have another one enqueue the task again.
	order := schedulerOrder{Addr: server.Addr(), TTL: 15 * time.Second, Entries: []schedulerEntry{{"@every 1s", "second", "default"}}}
	workers := []*schedulerWorker{startScheduler(t, order), startScheduler(t, order), startScheduler(t, order)}
	first := nextSecond()
	at := func(tick int, into time.Duration) { until(first.Add(time.Duration(tick)*time.Second + into)) }

	// between ticks: another test kills a process between the enqueueing and the marker
	at(1, 800*time.Millisecond)
	workers[0].Kill()
	workers[0] = startScheduler(t, order)
	workers[1].stop(t)
	at(3, 800*time.Millisecond)
	require.NoError(t, workers[2].Freeze())
	at(6, 500*time.Millisecond) // ticks are seconds of real time
	require.NoError(t, workers[2].Thaw())
	at(8, 0)
	requireTicks(t, first, 8, time.Second, func() map[time.Time]int {
		mu.Lock()
		defer mu.Unlock()
		copied := map[time.Time]int{}
		for tick, n := range runs {
			copied[tick] = n
		}
		return copied
	})
}

func TestWeekly_managerProcessesEnqueueEachTickOnce(t *testing.T) {
	redistest.Long(t)
	server := redistest.Start(t)
	order := schedulerOrder{Addr: server.Addr(), Manager: true, TTL: 2 * time.Second, Entries: []schedulerEntry{
		{"@every 1s", "second", "default"}, {"@every 3s", "third", "default"},
	}}
	workers := []*schedulerWorker{startScheduler(t, order), startScheduler(t, order), startScheduler(t, order)}
	first := nextSecond()
	until(first.Add(3*time.Second + 2*time.Millisecond)) // ticks are seconds of real time
	workers[0].Kill()
	until(first.Add(6 * time.Second))
	workers[0] = startScheduler(t, order)
	workers[1].stop(t)
	until(first.Add(9 * time.Second))
	in := inspect(t, server.Addr())
	requireTicks(t, first, 9, time.Second, func() map[time.Time]int { return pendingTicks(t, in, "default", "second") })
	third := time.Unix((first.Unix()+2)/3*3, 0).UTC()
	requireTicks(t, third, 2, 3*time.Second, func() map[time.Time]int { return pendingTicks(t, in, "default", "third") })
}

// A process that is alone was paused: it makes up for what it has missed.
func TestSchedulerProcesses_catchUpAfterAPause(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := startScheduler(t, schedulerOrder{Addr: server.Addr(), TTL: time.Second, Entries: []schedulerEntry{{"@every 1s", "second", "default"}}})
	first := nextSecond()
	until(first.Add(1500 * time.Millisecond))
	require.NoError(t, w.Freeze())
	until(first.Add(5500 * time.Millisecond))
	require.NoError(t, w.Thaw())
	in := inspect(t, server.Addr())
	requireTicks(t, first, 7, time.Second, func() map[time.Time]int { return pendingTicks(t, in, "default", "second") })
}

func TestSchedulerProcesses_anotherEnqueuesIfOneWasKilledWithTheLease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	order := schedulerOrder{Addr: server.Addr(), TTL: time.Second, Entries: []schedulerEntry{{"@every 1s", "second", "default"}}}
	order.Block = "pre"
	blocked := startScheduler(t, order)
	blocked.Says("pre") // it has won a tick
	order.Block = ""
	first := nextSecond()
	other := startScheduler(t, order)
	blocked.Kill()
	until(nextSecond())
	n := int(nextSecond().Sub(first) / time.Second)
	in := inspect(t, server.Addr())
	requireTicks(t, first, n, time.Second, func() map[time.Time]int { return pendingTicks(t, in, "default", "second") })
	other.stop(t)
}

func TestSchedulerProcesses_aTaskWhoseProcessWasKilledBeforeTheMarkerIsNotEnqueuedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	order := schedulerOrder{Addr: server.Addr(), TTL: time.Second, Entries: []schedulerEntry{{"@every 1s", "second", "default"}}}
	other := startScheduler(t, order)
	order.Block = "release"
	blocked := startScheduler(t, order)
	first := nextSecond()
	said := strings.Fields(blocked.Says("releases"))
	for said[1] != "true" { // on a busy machine, it may give up a tick that the other one has won
		said = strings.Fields(blocked.Says("releases"))
	}
	blocked.Kill() // it was going to leave a marker
	tick := tickOf(t, said[0])

	g, err := guard.New(single.New(server.Client(t)), guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	errNoMarker := errors.New("the key was free")
	// the other one has found the task, and has left the marker
	require.Eventually(t, func() bool {
		err := g.Do(t.Context(), "asynq-tick:"+said[0], func(context.Context) error { return errNoMarker })
		return errors.Is(err, guard.ErrDone)
	}, schedulerSoon, 300*time.Millisecond)
	n := int(nextSecond().Sub(first)/time.Second) - 1
	in := inspect(t, server.Addr())
	ticks := func() map[time.Time]int { return pendingTicks(t, in, "default", "second") }
	requireTicks(t, first, n, time.Second, ticks)
	require.Equal(t, 1, ticks()[tick])
	other.stop(t)
	require.NotContains(t, other.Said(), "error")
}

// The only process was killed, and another one comes later: it knows from the store where it was.
func TestSchedulerProcesses_goOnWhereTheyWereAfterAllWereDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	order := schedulerOrder{Addr: server.Addr(), TTL: time.Second, Entries: []schedulerEntry{{"@every 1s", "second", "default"}}}
	w := startScheduler(t, order)
	first := tickOf(t, w.Says("enqueued"))
	w.Kill()
	until(time.Now().Add(3 * time.Second)) // ticks are seconds of real time
	startScheduler(t, order)
	in := inspect(t, server.Addr())
	requireTicks(t, first, 5, time.Second, func() map[time.Time]int { return pendingTicks(t, in, "default", "second") })
}
