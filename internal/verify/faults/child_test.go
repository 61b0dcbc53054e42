package faults_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// A child is a worker process. It runs the commands that come as lines on its stdin. It answers
// each with a line: "ok …" or "error …".
type child struct {
	task
	log      *history.Log
	clients  []redis.UniversalClient
	metrics  *faultmetrics.Metrics
	guard    *guard.Guard
	resource *history.Client
	cutOff   bool // its clients were closed, or the store was away for more than twice the TTL

	mu       sync.Mutex
	held     map[string]*held   // by command, not by the loops
	shares   *guard.Guard       // of what is shared; nil if nothing is
	sharings map[string]sharing // by name
	waiting  map[string]*waiting
	untyped  []string // errors that are none of the six
	// attempts that the store has not granted, as onerun.acquire.duration counts them
	refused []string

	stop  context.CancelFunc // of what runs in the background
	going context.Context
	loops sync.WaitGroup
}

// A command does what a line says whose first word it is filed under. What it returns is the rest
// of the answer.
type command func(c *child, args []string) (string, error)

// commandLists are those of all files that have some.
var commandLists = []map[string]command{leaseCommands, loopCommands, clientCommands, awaitCommands, sharingCommands}

func work(do task, log *history.Log) {
	lines := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
		close(lines)
	}()
	if do.Procs > 0 {
		runtime.GOMAXPROCS(do.Procs)
	}
	before := goleak.IgnoreCurrent()
	stopWatch := log.WatchStalls()
	c := &child{task: do, log: log, metrics: faultmetrics.New(), held: map[string]*held{}, waiting: map[string]*waiting{}}
	c.going, c.stop = context.WithCancel(context.Background())
	if err := c.open(); err != nil {
		fail(err)
	}
	fmt.Println("ok")
	for line := range lines {
		words := strings.Fields(line)
		if words[0] == "end" {
			answer(c.end(before, stopWatch))
			return
		}
		answer(c.do(words))
	}
	// The test has ended without a word: it has failed.
}

func answer(s string, err error) {
	if err != nil {
		s = "error " + err.Error()
	} else {
		s = "ok " + s
	}
	fmt.Println(strings.ReplaceAll(s, "\n", " "))
}

func (c *child) do(words []string) (string, error) {
	for _, list := range commandLists {
		if f, ok := list[words[0]]; ok {
			return f(c, words[1:])
		}
	}
	return "", fmt.Errorf("there is no command %q", words[0])
}

// open makes the clients, the backend and the Guard.
func (c *child) open() (err error) {
	if c.resource, err = history.Dial(context.Background(), c.Socket); err != nil {
		return err
	}
	hook := guard.WithHook(c.metrics.Hook)
	c.guard, err = guard.New(c.log.Record(c.locker()), guard.WithTTL(c.TTL), hook, guard.WithHook(guard.Hook{AcquireEnd: c.acquireEnd}))
	return err
}

// acquireEnd is a hook.
func (c *child) acquireEnd(_ context.Context, e guard.AcquireEvent) {
	var store *guard.StoreError
	if errors.As(e.Err, &store) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refused = append(c.refused, fmt.Sprintf("onerun.acquire.duration{error.type=%s,onerun.result=error}", store.Kind))
	}
}

func (c *child) locker() guard.Locker {
	on, of, _ := strings.Cut(c.Backend, " of ")
	store := func(rdb redis.UniversalClient) guard.Locker {
		c.clients = append(c.clients, rdb)
		if on == backends.Reentrant || of == backends.Reentrant {
			return backends.On(backends.Reentrant, rdb)
		}
		return backends.On(backends.Single, rdb)
	}
	switch on {
	case "cluster":
		return store(redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs}))
	case "sentinel":
		return store(redis.NewFailoverClient(c.failover()))
	case "sentinel-cluster":
		return store(redis.NewFailoverClusterClient(c.failover()))
	}
	var nodes []guard.Locker
	for _, addr := range c.Addrs {
		nodes = append(nodes, store(redis.NewClient(&redis.Options{Addr: addr, PoolSize: c.Pool})))
	}
	if c.Backend == "redlock" {
		return redlock.New(nodes, redlock.WithHook(c.metrics.Hook))
	}
	return nodes[0]
}

func (c *child) failover() *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: "primary", SentinelAddrs: c.Addrs,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if to := c.Reroute[addr]; to != "" {
				addr = to
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
}

// A closing is what a worker says of itself in the end.
type closing struct {
	Leaks   string   // goroutines that are left, or connections that are in use
	Metrics []string // what went wrong, as an operator sees it
	Untyped []string
}

// end ends everything and looks at what is left.
func (c *child) end(before goleak.Option, stopWatch func()) (string, error) {
	c.stop()
	c.loops.Wait()
	for _, h := range c.held {
		_ = h.release(context.Background())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := c.guard.Close(ctx)
	if c.shares != nil {
		err = errors.Join(err, c.shares.Close(ctx))
	}
	switch {
	case c.cutOff && (err == nil || errors.Is(err, guard.ErrStore)): // it could be released, or not
	case c.cutOff:
		return "", fmt.Errorf("closed after it was cut off, a Guard says: %w", err)
	case err != nil:
		return "", err
	}
	last := closing{Leaks: c.inUse(), Metrics: append(c.metrics.Lines(), c.refused...), Untyped: c.untyped}
	for _, rdb := range c.clients {
		_ = rdb.Close() // a command may have done so
	}
	_ = c.resource.Close()
	stopWatch()
	var leaked error
	for start := time.Now(); time.Since(start) < leakLimit; {
		if leaked = goleak.Find(append(c.neverEnd(), before)...); leaked == nil {
			break
		}
	}
	if leaked != nil {
		last.Leaks += " " + leaked.Error()
	}
	said, err := json.Marshal(last)
	return string(said), err
}

// neverEnd returns the goroutines of a client that go-redis does not end if the client is closed.
func (c *child) neverEnd() []goleak.Option {
	if !strings.HasPrefix(c.Backend, "sentinel-cluster") {
		return nil
	}
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*sentinelFailover).listen"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*channel).initMsgChan.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*channel).initHealthCheck.func1"),
	}
}

// leakLimit is how long a connection may stay in use, and a goroutine may live, after the Guard was
// closed. A backend keeps the connection of its renewals for 15 s. go-redis ends a read or a dial
// by its own time-outs, which are five seconds.
const leakLimit = 17 * time.Second

// inUse waits until no connection of the clients is in use, and says how many are if that does not
// come.
func (c *child) inUse() string {
	// connections come back without a word
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		var used uint32
		for _, rdb := range c.clients {
			stats := rdb.PoolStats()
			used += stats.TotalConns - stats.IdleConns
		}
		if used == 0 {
			return ""
		}
		if time.Since(start) > leakLimit {
			return fmt.Sprint(used, " connections in use")
		}
	}
}

// typed notes an error that is none of those with which a call of a Guard can end with.
func (c *child) typed(err error) error {
	for _, known := range []error{guard.ErrBusy, guard.ErrDone, guard.ErrLost, guard.ErrClosed, guard.ErrStore, guard.ErrMarker, context.Canceled, context.DeadlineExceeded} {
		if err == nil || errors.Is(err, known) {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.untyped = append(c.untyped, err.Error())
	return err
}
