package guardcron_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The store is away for five ticks, and a tick may start two seconds late.
func TestLong_ticksWithoutAStoreRunOnceOrAreReported(t *testing.T) {
	redistest.Long(t)
	for name, fault := range map[string]func(server *redistest.Server, proxy *redistest.Proxy) (over func()){
		"frozen": func(server *redistest.Server, _ *redistest.Proxy) func() { server.Freeze(); return server.Thaw },
		"killed": func(server *redistest.Server, _ *redistest.Proxy) func() { server.Kill(); return server.Restart },
		"cut off": func(_ *redistest.Server, proxy *redistest.Proxy) func() {
			proxy.GoDark()
			return proxy.Restore
		},
		// it is asked, and does what it is asked for
		"deaf": func(_ *redistest.Server, proxy *redistest.Proxy) func() {
			proxy.DarkReplies()
			return proxy.Restore
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireOnceThroughAFault(t, fault)
		})
	}
}

func requireOnceThroughAFault(t *testing.T, fault func(server *redistest.Server, proxy *redistest.Proxy) (over func())) {
	resource := redistest.Start(t)
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	proxy := redistest.StartProxy(t, server.Addr())
	log := &procLog{rdb: resource.Client(t)}
	order := procOrder{Addrs: []string{proxy.Addr()}, Log: resource.Addr(), TTL: time.Second, Jobs: []procJob{{Name: "job", Takes: time.Millisecond, Deadline: 2 * time.Second}}}
	var workers []*procWorker
	for i, ahead := range []time.Duration{-300 * time.Millisecond, 0, 300 * time.Millisecond} {
		workers = append(workers, startHere(t, order.as(fmt.Sprint("process ", i), ahead)))
	}
	started := time.Now().Unix()
	var first int64
	require.Eventually(t, func() bool { // a run has ended, and is on record
		records, err := workers[0].jobs.Records(context.Background(), "job", 100)
		require.NoError(t, err)
		at := slices.IndexFunc(records, func(r guardcron.Record) bool { return r.Tick.Unix() >= started+3 && r.Result == guardcron.Ran })
		if at >= 0 {
			first = records[at].Tick.Unix()
		}
		return at >= 0
	}, procSoon, 20*time.Millisecond)
	away := time.Now()
	over := fault(server, proxy)
	untilTick(away.Unix()+6, 500*time.Millisecond) // while there is no store
	over()
	back := time.Now().Unix()
	// unwritten reports whether the store may not have a record that an observer received: it was
	// away then, or a moment later.
	unwritten := func(e procEvent) bool { return e.At > away.Add(-time.Second).UnixMilli() && e.At < (back+1)*1000 }
	log.await(t, "a run after it", func(e procEvent) bool { return e.Kind == "end" && e.Tick >= (back+3)*1000 })
	last := back + 3
	unsettled := func() (ticks []int64) {
		events := log.read(t)
		for tick := first; tick <= last; tick++ {
			if !events.settled("job", tick*1000) {
				ticks = append(ticks, tick)
			}
		}
		return ticks
	}
	for limit := time.Now().Add(procSoon); len(unsettled()) > 0 && time.Now().Before(limit); {
		time.Sleep(50 * time.Millisecond) // between two looks
	}
	require.Empty(t, unsettled(), "neither run nor reported: %d to %d", first, last)
	for _, w := range workers {
		require.NoError(t, w.close(procSoon))
	}
	reader, err := newProcWorker(order.as("reader", 0))
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.close(procSoon)) }()
	records, err := reader.jobs.Records(context.Background(), "job", 1000)
	require.NoError(t, err)
	events := log.read(t)
	missed, onRecord := 0, 0
	for tick := first; tick <= last; tick++ {
		events.requireTick(t, "job", tick*1000)
		if !slices.ContainsFunc(events.of("job", tick*1000, "record"), unwritten) {
			events.requireRecords(t, records, "job", tick*1000)
			onRecord++
		}
		for _, e := range events.of("job", tick*1000, "missed") {
			require.Equal(t, string(guardcron.Missed), e.Result)
			require.NotEmpty(t, e.Reason)
			missed++
		}
	}
	require.Positive(t, missed, "no tick was too late")
	require.Positive(t, onRecord, "no tick was looked up")
	events.requireNoTwo(t, "job")
}
