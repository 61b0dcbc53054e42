package load_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A place is a server with Guards, each on a client of its own as one process has it, and what
// there was before the load came.
type place struct {
	t       *testing.T
	server  *redistest.Server
	looks   *redis.Client // at the server
	pings   *redis.Client // the same server, for a watch
	before  usage
	clients []*redis.Client
	lockers []guard.Locker
	guards  []*guard.Guard
}

// onEach runs a test on each backend; in the short form on those that are named.
func onEach(t *testing.T, inShort []string, test func(t *testing.T, backend string)) {
	t.Helper()
	for _, backend := range backends.OnOneRedis {
		if full() || slices.Contains(inShort, backend) {
			t.Run(backend, func(t *testing.T) { test(t, backend) })
		}
	}
}

// newPlace returns one for that many goroutines.
func newPlace(t *testing.T, backend string, guards, goroutines int, opts ...guard.Option) *place {
	t.Helper()
	server := redistest.Start(t)
	one := func(o *redis.Options) { o.PoolSize = 1 }
	p := &place{t: t, server: server, looks: server.Client(t, one), pings: server.Client(t, one)}
	require.NoError(t, p.pings.Ping(t.Context()).Err())
	p.open(backend, guards, opts)
	for _, g := range p.guards {
		// the server knows the scripts, and has its fence
		require.NoError(t, g.Do(t.Context(), "warm", nothing))
	}
	p.close()
	growRuntime(goroutines)
	p.before = p.usage()
	p.open(backend, guards, opts)
	return p
}

func nothing(context.Context) error { return nil }

func (p *place) open(backend string, guards int, opts []guard.Option) {
	p.t.Helper()
	for range guards {
		rdb := p.server.Client(p.t)
		l := backends.On(backend, rdb)
		g, err := guard.New(l, opts...)
		require.NoError(p.t, err)
		p.clients, p.lockers, p.guards = append(p.clients, rdb), append(p.lockers, l), append(p.guards, g)
	}
}

func (p *place) close() {
	p.t.Helper()
	for i, g := range p.guards {
		require.NoError(p.t, g.Close(p.t.Context()))
		require.NoError(p.t, p.lockers[i].(io.Closer).Close()) // its connection for renewals
		require.NoError(p.t, p.clients[i].Close())
	}
	p.guards, p.lockers, p.clients = nil, nil, nil
}

// growRuntime has the runtime make what it keeps for ever for that many goroutines that wait with
// a time-out, and for a tenth more, which are on an errand beside them: descriptors of goroutines,
// room for timers. It would be taken for something that the load has left.
func growRuntime(goroutines int) {
	var all sync.WaitGroup
	end := make(chan struct{})
	for range goroutines * 11 / 10 {
		all.Go(func() {
			timer := time.NewTimer(time.Hour)
			defer timer.Stop()
			select {
			case <-end:
			case <-timer.C:
			}
		})
	}
	close(end)
	all.Wait()
}

// A usage is what this process and the server use.
type usage struct {
	goroutines    int
	heap, stacks  int // bytes
	clients, keys int // of the server, without fence counters
	memory        int // of the server, bytes
}

func (u usage) String() string {
	const mega = 1 << 20
	return fmt.Sprintf("%d goroutines, %.1f MB of heap, %.1f MB of stacks; the server: %d clients, %d keys, %.1f MB",
		u.goroutines, float64(u.heap)/mega, float64(u.stacks)/mega, u.clients, u.keys, float64(u.memory)/mega)
}

// usage looks after what is garbage has gone. Of goroutines it takes the fewest of a few looks, so
// that one which is on an errand is not taken for one that stays.
func (p *place) usage() usage {
	p.t.Helper()
	runtime.GC()
	runtime.GC() // what the first has only taken out of pools
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fewest := runtime.NumGoroutine()
	for range 20 {
		time.Sleep(5 * time.Millisecond) // between looks
		fewest = min(fewest, runtime.NumGoroutine())
	}
	return usage{
		goroutines: fewest,
		heap:       int(stats.HeapAlloc), stacks: int(stats.StackInuse),
		clients: p.info("clients", "Clients", "connected_clients"),
		memory:  p.info("memory", "Memory", "used_memory"),
		keys:    p.keys(),
	}
}

// keys returns how many keys there are, without the fence counters, which stay: a bounded number,
// however many keys were ever used.
func (p *place) keys() (n int) {
	p.t.Helper()
	all := p.looks.Scan(context.Background(), 0, "*", 10_000).Iterator()
	for all.Next(context.Background()) {
		if !strings.HasSuffix(all.Val(), ":fence") {
			n++
		}
	}
	require.NoError(p.t, all.Err())
	return n
}

func (p *place) info(section, title, field string) int {
	p.t.Helper()
	info, err := p.looks.InfoMap(context.Background(), section).Result()
	require.NoError(p.t, err)
	n, err := strconv.ParseFloat(info[title][field], 64)
	require.NoError(p.t, err)
	return int(n)
}

// requireIdle fails unless all connections of the clients are back in their pools.
func (p *place) requireIdle() {
	p.t.Helper()
	for _, rdb := range p.clients {
		require.Eventually(p.t, func() bool {
			stats := rdb.PoolStats()
			return stats.TotalConns == stats.IdleConns
		}, soon, 10*time.Millisecond, "connections that are still in use")
		require.Zero(p.t, rdb.PoolStats().Timeouts, "calls that had no connection in time")
	}
}

// requireBase closes the Guards and the clients, and fails unless all is as it was before.
func (p *place) requireBase() {
	p.t.Helper()
	p.requireIdle()
	p.t.Logf("idle:   %v", p.usage())
	p.close()
	var after usage
	back := func() bool {
		after = p.usage()
		return after.goroutines <= p.before.goroutines && after.clients <= p.before.clients && after.keys <= p.before.keys &&
			after.heap <= p.before.heap+heapSlack
	}
	for end := time.Now().Add(soon); !back() && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // between two looks
	}
	p.t.Logf("before: %v", p.before)
	p.t.Logf("after:  %v", after)
	require.True(p.t, back(), "there is more than before")
}

// heapSlack is for what the tests and the runtime themselves keep.
const heapSlack = 1 << 20

// A meter is what was used until an instant.
type meter struct {
	at          time.Time
	cpu, server time.Duration
	commands    int
}

func (p *place) meter() meter {
	p.t.Helper()
	var own syscall.Rusage
	require.NoError(p.t, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	cpu, err := p.looks.InfoMap(context.Background(), "cpu").Result()
	require.NoError(p.t, err)
	m := meter{at: time.Now(), cpu: time.Duration(own.Utime.Nano() + own.Stime.Nano())}
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu["CPU"][field], 64)
		require.NoError(p.t, err)
		m.server += time.Duration(seconds * float64(time.Second))
	}
	m.commands = p.info("stats", "Stats", "total_commands_processed")
	return m
}

// since tells what was used since m, by the second. Commands that a script calls are commands,
// too.
func (p *place) since(m meter) string {
	p.t.Helper()
	now := p.meter()
	span := now.at.Sub(m.at).Seconds()
	return fmt.Sprintf("%.0f commands/s at the server, %.0f %% CPU here, %.0f %% CPU there",
		float64(now.commands-m.commands)/span, 100*(now.cpu-m.cpu).Seconds()/span, 100*(now.server-m.server).Seconds()/span)
}
