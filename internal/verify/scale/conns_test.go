package scale_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// fleetTTL is the TTL of the leases of a fleet.
const fleetTTL = 10 * time.Second

// A state is what each process of a fleet is doing.
type state struct {
	name string
	do   func(f *crowd)
}

// A crowd is processes on one server, each a Guard and a client of its own.
type crowd struct {
	t      *testing.T
	server *redistest.Server
	guards []*guard.Guard
	ctx    context.Context // of what runs until the end
	all    sync.WaitGroup
}

var states = []state{
	{"has run something a moment ago", func(*crowd) {}},
	{"has run 64 things at the same time", func(f *crowd) { f.run(64) }},
	{"idle for 5 s", func(*crowd) { settle(5 * time.Second) }},
	{"holds 1 lease", func(f *crowd) { f.hold(1) }},
	{"holds 20 leases", func(f *crowd) { f.hold(20) }},
	{"waits for 1 key", func(f *crowd) { f.wait(1, 1) }},
	{"waits for 1 key by 10 callers", func(f *crowd) { f.wait(1, 10) }},
	{"waits for 10 keys", func(f *crowd) { f.wait(10, 1) }},
	{"waits for 1 key, `WithFair`", func(f *crowd) { f.wait(1, 1, guard.WithFair()) }},
}

func TestConnections_ofAFleet(t *testing.T) {
	processes, of := 10, states[1:6]
	if full() {
		processes, of = 1000, states
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| each of %s processes | connections | of them for subscriptions | subscriptions | channels on the server | server memory | scripts/s | PINGs/s |\n|---|---|---|---|---|---|---|---|\n", thousands(processes))
	for _, s := range of {
		t.Run(s.name, func(t *testing.T) {
			fmt.Fprintln(&table, measureConns(t, s, processes))
		})
	}
	show(t, "connections", table.String())
}

func measureConns(t *testing.T, s state, processes int) string {
	f := &crowd{t: t, server: redistest.Start(t)}
	var end context.CancelFunc
	f.ctx, end = context.WithCancel(context.Background())
	admin := f.server.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
	require.NoError(t, admin.Ping(t.Context()).Err())
	memory := info(t, admin, "memory", "Memory", "used_memory")
	for range processes {
		g, err := guard.New(single.New(f.server.Client(t)), guard.WithTTL(fleetTTL))
		require.NoError(t, err)
		f.guards = append(f.guards, g)
	}
	inParallel(32, processes, func(i int) {
		key := fmt.Sprint("own", i)
		if err := f.guards[i].Do(context.Background(), key, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
	s.do(f)
	f.server.ResetStats(t)
	start := time.Now()
	settle(2 * fleetTTL / 3) // in which commands are counted
	calls, seconds := f.server.Calls(t), time.Since(start).Seconds()
	scripts, pings := float64(calls["evalsha"]+calls["eval"])/seconds, float64(calls["ping"])/seconds
	list, err := admin.ClientList(t.Context()).Result()
	require.NoError(t, err)
	conns, pubsub, subs := -1, 0, 0 // without ours
	for line := range strings.Lines(list) {
		conns++
		for field := range strings.FieldsSeq(line) {
			var n int
			if _, err := fmt.Sscanf(field, "sub=%d", &n); err == nil && n > 0 {
				pubsub++
				subs += n
			}
		}
	}
	channels, err := admin.PubSubChannels(t.Context(), "*").Result()
	require.NoError(t, err)
	used := info(t, admin, "memory", "Memory", "used_memory") - memory
	end()
	f.all.Wait()
	for _, g := range f.guards {
		require.NoError(t, g.Close(context.Background()))
	}
	each := float64(processes)
	return fmt.Sprintf("| %s | %.1f | %.1f | %.1f | %s | %.1f MB | %s | %s |", s.name, float64(conns)/each, float64(pubsub)/each,
		float64(subs)/each, thousands(len(channels)), used/(1<<20), thousands(int(scripts)), thousands(int(pings)))
}

// run has each process run so many things at the same time.
func (f *crowd) run(callers int) {
	f.t.Helper()
	var all sync.WaitGroup
	for i := range len(f.guards) * callers {
		all.Go(func() {
			key := fmt.Sprint("run", i)
			if err := f.guards[i%len(f.guards)].Do(context.Background(), key, func(context.Context) error { return nil }); err != nil {
				f.t.Error(err)
			}
		})
	}
	all.Wait()
}

// settle waits until the figures are those of a fleet that has been in a state for some time. The
// short form needs no figures.
func settle(d time.Duration) {
	if !full() {
		d = 100 * time.Millisecond
	}
	time.Sleep(d)
}

// hold has each process hold so many leases until the end.
func (f *crowd) hold(leases int) {
	f.t.Helper()
	inParallel(32, len(f.guards)*leases, func(i int) {
		lease, err := f.guards[i%len(f.guards)].Acquire(context.Background(), fmt.Sprint("held", i))
		if err != nil {
			f.t.Error(err)
			return
		}
		f.all.Go(func() {
			<-f.ctx.Done()
			_ = lease.Release(context.Background())
		})
	})
	settle(4 * time.Second) // until they have been renewed
}

// wait has callers of each process wait for keys that another one holds until the end.
func (f *crowd) wait(keys, callers int, opts ...guard.Option) {
	f.t.Helper()
	holder, err := guard.New(single.New(f.server.Client(f.t)), guard.WithTTL(time.Hour))
	require.NoError(f.t, err)
	f.guards = append(f.guards, holder)
	var busy sync.WaitGroup
	for k := range keys {
		key := fmt.Sprint("busy", k)
		lease, err := holder.Acquire(f.t.Context(), key)
		require.NoError(f.t, err)
		f.all.Go(func() {
			<-f.ctx.Done()
			_ = lease.Release(context.Background())
		})
		for _, g := range f.guards[:len(f.guards)-1] {
			for range callers {
				busy.Add(1)
				told := sync.OnceFunc(busy.Done)
				hook := guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { told() }})
				f.all.Go(func() {
					_, _ = g.Acquire(f.ctx, key, append(opts, guard.WithWait(guard.Forever), hook)...)
				})
			}
		}
	}
	busy.Wait()
	settle(2 * time.Second) // until they have subscribed and asked once more
}
