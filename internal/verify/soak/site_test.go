package soak_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// A site is the servers, the processes and the ways between them.
type site struct {
	t        *testing.T
	backend  string
	stores   []*redistest.Server
	admins   []*redis.Client      // of the stores, past all proxies
	ways     [][]*redistest.Proxy // of each worker, to each store
	queue    *redistest.Server
	queued   *redis.Client
	resource *child
	socket   string

	mu     sync.Mutex
	now    []*child // the present worker of each place
	all    []*child // and those before them
	urls   []string
	losses []loss
	kills  []history.Event
}

// A loss is a time in which a store has forgotten a key, or all where it is empty.
type loss struct {
	key      string
	from, to int64
}

// newSite starts all but the work.
func newSite(t *testing.T, backend string) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "soak") // t.TempDir's may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	nodes := 1
	if backend == "redlock" {
		nodes = 3
	}
	s := &site{
		t: t, backend: backend, socket: filepath.Join(dir, "resource"), queue: redistest.Start(t),
		// What was written is in the file before it is answered, so that a server which is killed
		// comes back with all that it had.
		stores: redistest.StartN(t, nodes, "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"),
		now:    make([]*child, workers), urls: make([]string, workers),
	}
	s.queued = s.queue.Client(t)
	for _, store := range s.stores {
		s.admins = append(s.admins, store.Client(t))
	}
	for range workers {
		var ways []*redistest.Proxy
		for _, store := range s.stores {
			ways = append(ways, redistest.StartProxy(t, store.Addr()))
		}
		s.ways = append(s.ways, ways)
	}
	s.resource = startChild(t, "resource", resourceEnv, keeping{Socket: s.socket, Log: s.logOf("resource")})
	s.resource.Says("listens")
	for place := range workers {
		s.startWorker(place)
	}
	return s
}

// logOf returns the file of a process's events, which proof soak keeps.
func (s *site) logOf(name string) string { return filepath.Join(s.t.ArtifactDir(), name+".log") }

// startWorker starts a worker in a place, and returns when it works.
func (s *site) startWorker(place int) {
	s.mu.Lock()
	name := fmt.Sprintf("worker %d.%d", place, len(s.all))
	s.mu.Unlock()
	o := order{Name: name, Backend: s.backend, Queue: s.queue.Addr(), Resource: s.socket, Log: s.logOf(name)}
	for _, way := range s.ways[place] {
		o.Stores = append(o.Stores, way.Addr())
	}
	c := startChild(s.t, name, workerEnv, o)
	c.log = o.Log
	url := c.Says("listens")
	c.Says("works")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[place], s.urls[place], s.all = c, url, append(s.all, c)
}

// replaceWorker kills the worker in a place, and starts another after some time.
func (s *site) replaceWorker(place int, after time.Duration) {
	s.mu.Lock()
	c := s.now[place]
	s.mu.Unlock()
	c.Kill()
	at := history.Now() // when it has certainly gone
	s.mu.Lock()
	s.kills = append(s.kills, history.Event{Process: c.name, Kind: history.Killed, Call: at, Return: at})
	s.mu.Unlock()
	s.bringBack(s.deliveries(c))
	time.Sleep(after) // while there is one fewer
	s.startWorker(place)
}

// deliveries returns the tasks that a killed worker was at.
func (s *site) deliveries(c *child) (ids []string) {
	for _, e := range read(s.t, c.log) {
		if e.Kind == deliveryKind && e.Return == 0 {
			ids = append(ids, e.Holder)
		}
	}
	return ids
}

// asynqLeases is where asynq keeps until when it trusts that tasks are being done, in seconds.
const asynqLeases = "asynq:{default}:lease"

// requeue puts a task back to those that are to be done, as asynq's own requeue does.
var requeue = redis.NewScript(`
local id = ARGV[1]
if redis.call('LREM', 'asynq:{default}:active', 0, id) == 0 then return 0 end
redis.call('ZREM', 'asynq:{default}:lease', id)
redis.call('RPUSH', 'asynq:{default}:pending', id)
redis.call('HSET', 'asynq:{default}:t:' .. id, 'state', 'pending')
return 1`)

// bringBack gives tasks of workers that are gone to others, as asynq would in a minute or two.
func (s *site) bringBack(ids []string) {
	for _, id := range ids {
		require.NoError(s.t, requeue.Run(context.Background(), s.queued, nil, id).Err())
	}
}

// abandoned returns the tasks of which nobody has said for a quarter of a minute that they are
// being done, as each worker does every five seconds.
func (s *site) abandoned() []string {
	// of the thirty that a worker gets each time
	trusted := time.Now().Add(15 * time.Second).Unix()
	ids, err := s.queued.ZRangeArgs(context.Background(), redis.ZRangeArgs{Key: asynqLeases, Start: "-inf", Stop: trusted, ByScore: true}).Result()
	require.NoError(s.t, err)
	return ids
}

// lost notes that a store has forgotten a key, or all of them, while f ran.
func (s *site) lost(key string, f func()) {
	l := loss{key: key, from: history.Now()}
	f()
	l.to = history.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = append(s.losses, l)
}

// url returns where the worker in a place listens.
func (s *site) url(place int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urls[place]
}

// each calls f for the workers that there are.
func (s *site) each(f func(c *child)) {
	s.mu.Lock()
	now := slices.Clone(s.now)
	s.mu.Unlock()
	for _, c := range now {
		f(c)
	}
}

// unfinished returns how many tasks asynq has still to do.
func (s *site) unfinished(inspector *asynq.Inspector) (n, archived int) {
	q, err := inspector.GetQueueInfo("default")
	require.NoError(s.t, err)
	return q.Pending + q.Active + q.Scheduled + q.Retry + q.Aggregating, q.Archived
}

// read returns the events of a file.
func read(t *testing.T, name string) []history.Event {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	events, err := history.Read(file)
	require.NoError(t, err)
	return events
}

// events returns those of all processes, the resource's in the order in which it has decided.
func (s *site) events() (all []history.Event) {
	s.t.Helper()
	for _, c := range s.all {
		all = append(all, read(s.t, c.log)...)
	}
	return append(append(all, s.kills...), read(s.t, s.logOf("resource"))...)
}
