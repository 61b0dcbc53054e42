package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// replicaEnv makes the test binary a worker process of BenchmarkReplicas: it holds the replica.
const replicaEnv = "ONERUN_BENCH_REPLICA"

// A replica is an asynq server of 20 workers, with the middleware and all defaults.
type replica struct {
	Addr string
	Work time.Duration
	// Around is what keeps the tasks of a customer apart: the middleware, or a floor.
	Around string
}

const (
	// byGuard is the middleware.
	byGuard = "guard"
	// byToken has a handler pop its customer's token from a list and push it back. It costs least,
	// survives no crash, and fills the workers with tasks that wait.
	byToken = "token"
	// inOrder has a handler enqueue its customer's next task when it ends. It is an ideal
	// scheduler that knows the order of the tasks. No task waits in a worker or comes in vain.
	inOrder = "order"
)

// replicaTask is what each task carries.
type replicaTask struct {
	Customer int       `json:"customer"`
	Next     int       `json:"next"` // inOrder: how many tasks of the customer follow
	Sent     time.Time `json:"sent"`
}

const (
	replicaWorkers = 20
	// replicaDone is the list of the customers of all tasks that are done.
	replicaDone = "bench:done"
	// replicaMet counts the handlers that ran at the same time as another one of their customer.
	replicaMet = "bench:met"
	// replicaLate is the list of the times from the enqueueing of tasks to the begins of their
	// handlers, in nanoseconds, of all customers but the first.
	replicaLate = "bench:late"
)

// serveReplica is the worker's main. It starts to work after a line of input, and stops at the end
// of the input.
func serveReplica(text string) {
	var r replica
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func (r replica) serve() error {
	conn := asynq.RedisClientOpt{Addr: r.Addr}
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr, PoolSize: 2 * replicaWorkers})
	g, err := guard.New(single.New(rdb), guard.WithNamespace("test"))
	if err != nil {
		return err
	}
	client := asynq.NewClient(conn)
	byCustomer, err := guardasynq.New(g, guardasynq.FromJSON("customer"), guardasynq.WithClient(client, asynq.NewInspector(conn)))
	if err != nil {
		return err
	}
	config := asynq.Config{Concurrency: replicaWorkers, LogLevel: asynq.FatalLevel}
	handler := map[string]asynq.Handler{
		byGuard: byCustomer(r.handler(rdb)), byToken: withToken(rdb, r.handler(rdb)), inOrder: thenNext(client, r.handler(rdb)),
	}[r.Around]
	// also of a floor, so that all look for tasks equally often
	server := asynq.NewServer(conn, guardasynq.Configure(config))
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if err := server.Start(handler); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	server.Shutdown()
	return g.Close(context.Background())
}

// handler returns the tasks' own work.
func (r replica) handler(rdb *redis.Client) asynq.HandlerFunc {
	return func(_ context.Context, task *asynq.Task) error {
		ctx := context.Background()
		var p replicaTask
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		if p.Customer > 0 {
			rdb.RPush(ctx, replicaLate, time.Since(p.Sent).Nanoseconds())
		}
		open := fmt.Sprint("bench:open:", p.Customer)
		if rdb.Incr(ctx, open).Val() != 1 {
			rdb.Incr(ctx, replicaMet)
		}
		time.Sleep(r.Work) // the task's own work
		rdb.Decr(ctx, open)
		return rdb.RPush(ctx, replicaDone, p.Customer).Err()
	}
}

func tokenOf(customer int) string { return fmt.Sprint("bench:token:", customer) }

func withToken(rdb *redis.Client, next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var p replicaTask
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		if err := rdb.BLPop(ctx, 0, tokenOf(p.Customer)).Err(); err != nil {
			return err
		}
		return errors.Join(next.ProcessTask(ctx, task), rdb.RPush(ctx, tokenOf(p.Customer), "token").Err())
	})
}

func thenNext(client *asynq.Client, next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var p replicaTask
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		if err := next.ProcessTask(ctx, task); err != nil || p.Next == 0 {
			return err
		}
		p.Next--
		return p.enqueue(client)
	})
}

func (p replicaTask) enqueue(client *asynq.Client) error {
	p.Sent = time.Now()
	payload, err := json.Marshal(p)
	if err == nil {
		_, err = client.Enqueue(asynq.NewTask("charge", payload))
	}
	return err
}

// A replicaLoad is a queue of tasks, each customer's of which must not run at the same time.
type replicaLoad struct {
	customers, each int
	work            time.Duration
}

// bound is the time that the handlers alone need: one after the other for each customer, on the
// workers of all processes.
func (l replicaLoad) bound(processes int) time.Duration {
	serial := time.Duration(l.each) * l.work
	return max(serial, serial*time.Duration(l.customers)/time.Duration(processes*replicaWorkers))
}

// BenchmarkReplicas measures how long one, two and four worker processes with all defaults take
// for a queue of tasks. x-bound compares that with the handlers alone. x-token and x-order compare
// it with asynq without the middleware, in the same run. Each is one measurement, however large
// b.N is.
func BenchmarkReplicas(b *testing.B) {
	for _, load := range []replicaLoad{{50, 20, 30 * time.Millisecond}, {20, 10, 500 * time.Millisecond}} {
		for _, processes := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("customers=%d/work=%v/processes=%d", load.customers, load.work, processes), func(b *testing.B) {
				bound := load.bound(processes)
				floors := map[string]time.Duration{"bound": bound}
				for _, around := range []string{byToken, inOrder} {
					floors[around] = load.run(b, processes, around)
					b.ReportMetric(floors[around].Seconds(), "s-"+around)
				}
				took := load.run(b, processes, byGuard)
				b.ReportMetric(took.Seconds(), "s")
				for around, floor := range floors {
					b.ReportMetric(float64(took)/float64(max(bound, floor)), "x-"+around)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// startReplicas starts worker processes, and returns them and when they began to work.
func startReplicas(b *testing.B, processes int, r replica) (all []*processtest.Child, start time.Time) {
	b.Helper()
	order, err := json.Marshal(r)
	require.NoError(b, err)
	for range processes {
		p := processtest.Self(b, replicaEnv+"="+string(order))
		require.Equal(b, "ready", p.Next())
		all = append(all, p)
	}
	start = time.Now()
	for _, p := range all {
		p.Tell("go")
	}
	return all, start
}

// run returns how long so many processes take for the load.
func (l replicaLoad) run(b *testing.B, processes int, around string) time.Duration {
	b.Helper()
	server := redistest.Start(b)
	rdb := server.Client(b)
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr()})
	defer client.Close()
	for customer := range l.customers {
		require.NoError(b, rdb.RPush(b.Context(), tokenOf(customer), "token").Err())
	}
	tasks, next := l.customers*l.each, 0
	if around == inOrder {
		next = l.each - 1
	}
	for i := range tasks / (next + 1) {
		require.NoError(b, replicaTask{Customer: i % l.customers, Next: next}.enqueue(client))
	}
	all, start := startReplicas(b, processes, replica{Addr: server.Addr(), Work: l.work, Around: around})
	for rdb.LLen(b.Context(), replicaDone).Val() < int64(tasks) {
		time.Sleep(5 * time.Millisecond) // between two looks
	}
	took := time.Since(start)
	require.Zero(b, rdb.Exists(b.Context(), replicaMet).Val(), "two handlers of a customer at a time")
	for _, p := range all {
		p.Kill() // the next measurement is to have the machine for itself
	}
	return took
}
