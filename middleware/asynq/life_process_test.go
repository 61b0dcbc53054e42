package guardasynq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// A lifeWorkerConfig says what a worker process does. It is in its environment, as JSON.
type lifeWorkerConfig struct {
	Name                   string
	Queue, Store, Resource string // addresses
	TTL                    time.Duration
	Concurrency            int
	ShutdownTimeout        time.Duration
}

const lifeWorkerConfigEnv = "ONERUN_TEST_TASKS"

// taskProcess is a worker process: an asynq server whose handlers write to the lifeResource, until
// its input ends or it gets SIGTERM.
func taskProcess() {
	var c lifeWorkerConfig
	err := json.Unmarshal([]byte(os.Getenv(lifeWorkerConfigEnv)), &c)
	if err == nil {
		err = c.work()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, c.Name+":", err)
		os.Exit(1)
	}
}

func (c *lifeWorkerConfig) work() error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop <- syscall.SIGTERM
	}()
	g, err := guard.New(single.New(redis.NewClient(&redis.Options{Addr: c.Store})), guard.WithNamespace("test"))
	if err != nil {
		return err
	}
	at := asynq.RedisClientOpt{Addr: c.Queue}
	byCustomer, err := guardasynq.New(g, guardasynq.FromJSON("customer"), guardasynq.WithClient(asynq.NewClient(at), asynq.NewInspector(at)),
		guardasynq.WithDelay(time.Second), guardasynq.WithLease(guard.WithTTL(c.TTL)))
	if err != nil {
		return err
	}
	config := asynq.Config{
		Concurrency:              c.Concurrency,
		TaskCheckInterval:        50 * time.Millisecond,
		DelayedTaskCheckInterval: time.Second,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return time.Second },
		ShutdownTimeout:          c.ShutdownTimeout,
		LogLevel:                 asynq.FatalLevel,
	}
	config = guardasynq.Configure(config)
	server := asynq.NewServer(at, config)
	resource := newLifeResource(redis.NewClient(&redis.Options{Addr: c.Resource}), c.Name)
	if err := server.Start(byCustomer(asynq.HandlerFunc(resource.handle))); err != nil {
		return err
	}
	fmt.Println("ready")
	<-stop
	server.Shutdown()
	fmt.Println("shut down")
	ctx, cancel := context.WithTimeout(context.Background(), lifeSoon)
	defer cancel()
	return g.Close(ctx) // it waits for the handlers that asynq has given up
}

// handle does what the task says, and writes about it to the resource. A task of kind "long" goes
// on until the test lets it end, and works for its time from then on. How the handler learns that
// it must stop depends on the task. A "blind" one learns it only if the resource refuses its
// write. A "careful" one asks the lease before it writes. The others check the context.
func (r *lifeResource) handle(ctx context.Context, task *asynq.Task) error {
	p := lifePayload(task)
	lease, _ := guard.FromContext(ctx)
	run := lifeWrite{
		Run: fmt.Sprintf("%s/%d", r.process, r.runs.Add(1)), Process: r.process, Task: guardasynq.TaskID(ctx, task), Customer: p.Customer, Fence: guard.Fence(ctx),
	}
	if err := r.write(run, "begin"); err != nil {
		return err
	}
	const step = 100 * time.Millisecond
	end := time.Now().Add(time.Duration(p.Work) * time.Millisecond)
	for {
		pause := time.After(min(step, time.Duration(p.Work)*time.Millisecond)) // the work
		if strings.HasSuffix(p.Kind, "blind") || strings.HasSuffix(p.Kind, "careful") {
			<-pause
		} else {
			select {
			case <-pause:
			case <-ctx.Done():
				return errors.Join(context.Cause(ctx), r.write(run, "stop"))
			}
		}
		if strings.HasSuffix(p.Kind, "careful") && !lease.Valid() {
			return errors.Join(guard.ErrLost, r.write(run, "stop"))
		}
		if strings.HasPrefix(p.Kind, "long") && !r.letGo() {
			end = time.Now().Add(time.Duration(p.Work) * time.Millisecond)
		}
		if time.Now().After(end) {
			return r.write(run, "end")
		}
		if err := r.write(run, "step"); err != nil {
			return err
		}
	}
}

// Handlers of all processes write to a lifeResource. It refuses a write under a fence that is
// lower than one that it has seen for the customer, or that belongs to another run. It keeps a log
// of all writes and refusals.
type lifeResource struct {
	rdb     *redis.Client
	process string
	runs    atomic.Int64
}

func newLifeResource(rdb *redis.Client, process string) *lifeResource {
	return &lifeResource{rdb: rdb, process: process}
}

// A lifeWrite is an entry of the resource's log.
type lifeWrite struct {
	Op, Run, Process, Task, Customer string
	Fence                            uint64
	Refused                          bool `json:",omitempty"`
	// the run that was open when this one began
	Over string `json:",omitempty"`
}

// KEYS: fences by customer, runs with the highest fences by customer, open runs by customer, open
// runs by run, done tasks, log. ARGV: the write. Answers 1, or 0 if it was refused. "stop" only
// says that the handler does not go on: it writes no more.
var lifeWriteScript = redis.NewScript(`
local w = cjson.decode(ARGV[1])
local fence = tonumber(ARGV[2])
local seen = tonumber(redis.call('HGET', KEYS[1], w.Customer) or '0')
local holder = redis.call('HGET', KEYS[2], w.Customer)
local open = redis.call('HGET', KEYS[3], w.Customer)
local refused = 0
if w.Op == 'begin' then
  if fence <= seen then refused = 1 end
elseif w.Op ~= 'stop' then
  if fence ~= seen or holder ~= w.Run then refused = 1 end
end
local entry = {Op = w.Op, Run = w.Run, Process = w.Process, Task = w.Task, Customer = w.Customer}
if refused == 1 then
  entry.Refused = true
elseif w.Op == 'begin' then
  if open then entry.Over = open end
  redis.call('HSET', KEYS[1], w.Customer, ARGV[2])
  redis.call('HSET', KEYS[2], w.Customer, w.Run)
  redis.call('HSET', KEYS[3], w.Customer, w.Run)
  redis.call('HSET', KEYS[4], w.Run, w.Task)
end
if w.Op == 'end' or w.Op == 'stop' or refused == 1 then
  if open == w.Run then redis.call('HDEL', KEYS[3], w.Customer) end
  redis.call('HDEL', KEYS[4], w.Run)
  if w.Op == 'end' and refused == 0 then redis.call('SADD', KEYS[5], w.Task) end
end
local line = cjson.encode(entry)
redis.call('RPUSH', KEYS[6], string.sub(line, 1, -2) .. ',"Fence":' .. ARGV[2] .. '}') -- cjson would write it as 1.7e15
return 1 - refused
`)

var lifeResourceKeys = []string{"fences", "holders", "open by customer", "open", "done", "log"}

func (r *lifeResource) write(run lifeWrite, op string) error {
	run.Op = op
	arg, err := json.Marshal(run)
	if err != nil {
		return err
	}
	written, err := lifeWriteScript.Run(context.Background(), r.rdb, lifeResourceKeys, arg, run.Fence).Int()
	if err == nil && written == 0 {
		err = fmt.Errorf("the resource has refused %s of %s under fence %d", op, run.Run, run.Fence)
	}
	return err
}

// letGo reports whether the test lets the long tasks end.
func (r *lifeResource) letGo() bool { return r.rdb.Exists(context.Background(), "go").Val() > 0 }

// open returns the runs that have begun in a process and neither ended nor stopped, and their
// tasks.
func (r *lifeResource) open(t *testing.T, process string) map[string]string {
	t.Helper()
	all, err := r.rdb.HGetAll(t.Context(), "open").Result()
	require.NoError(t, err)
	for run := range all {
		if !strings.HasPrefix(run, process+"/") {
			delete(all, run)
		}
	}
	return all
}

func (r *lifeResource) log(t *testing.T) []lifeWrite {
	t.Helper()
	lines, err := r.rdb.LRange(t.Context(), "log", 0, -1).Result()
	require.NoError(t, err)
	all := make([]lifeWrite, len(lines))
	for i, line := range lines {
		require.NoError(t, json.Unmarshal([]byte(line), &all[i]))
	}
	return all
}

// A lifeProcess is a worker process. It ends with its input.
type lifeProcess struct {
	*processtest.Child
	name string
}

func startLifeProcess(t *testing.T, c lifeWorkerConfig) *lifeProcess {
	t.Helper()
	arg, err := json.Marshal(c)
	require.NoError(t, err)
	return &lifeProcess{processtest.Self(t, workerEnv+"=tasks", lifeWorkerConfigEnv+"="+string(arg)), c.Name}
}
