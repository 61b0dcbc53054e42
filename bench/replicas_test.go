package bench

import (
	"bufio"
	"context"
	"encoding/json"
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
	"github.com/seed-1795987d/onerun/internal/processtest"
	"github.com/seed-1795987d/onerun/internal/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// replicaEnv makes the test binary a worker process of BenchmarkReplicas: it holds the replica.
const replicaEnv = "ONERUN_BENCH_REPLICA"

// A replica is an asynq server of 20 workers, with the middleware and all defaults.
type replica struct {
	Addr string
	Work time.Duration
}

// replicaTask is what each task carries.
type replicaTask struct {
	Customer int `json:"customer"`
}

const (
	replicaWorkers = 20
	// replicaDone is the list of the tasks that are done, by their customers.
	replicaDone = "bench:done"
	// replicaMet counts handlers that found another one of their customer under way.
	replicaMet = "bench:met"
)

// serveReplica is the worker's main. It works from a line of its input on, until that ends.
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
	conn, rdb := asynq.RedisClientOpt{Addr: r.Addr}, redis.NewClient(&redis.Options{Addr: r.Addr})
	g, err := guard.New(single.New(rdb))
	if err != nil {
		return err
	}
	byCustomer, err := guardasynq.New(g, guardasynq.ByJSON("customer"), guardasynq.WithClient(asynq.NewClient(conn), asynq.NewInspector(conn)))
	if err != nil {
		return err
	}
	config := asynq.Config{Concurrency: replicaWorkers, LogLevel: asynq.FatalLevel}
	guardasynq.Configure(&config)
	server := asynq.NewServer(conn, config)
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if err := server.Start(byCustomer(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ctx := context.Background()
		var p replicaTask
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		open := fmt.Sprint("bench:open:", p.Customer)
		if rdb.Incr(ctx, open).Val() != 1 {
			rdb.Incr(ctx, replicaMet)
		}
		time.Sleep(r.Work) // the task's own work
		rdb.Decr(ctx, open)
		return rdb.RPush(ctx, replicaDone, p.Customer).Err()
	}))); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	server.Shutdown()
	return g.Close(context.Background())
}

// BenchmarkReplicas is the time that a queue of tasks takes, of a few customers whose tasks must
// not run at the same time, on one, two and four worker processes with all defaults. The bound is
// what the handlers alone need: for a customer one after the other, on the workers that there are.
// It is one measurement, however large b.N is.
func BenchmarkReplicas(b *testing.B) {
	for _, load := range []struct {
		customers, each int
		work            time.Duration
	}{
		{50, 20, 30 * time.Millisecond},
		{20, 10, 500 * time.Millisecond},
	} {
		for _, processes := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("customers=%d/work=%v/processes=%d", load.customers, load.work, processes), func(b *testing.B) {
				server := redistest.Start(b)
				client := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr()})
				defer client.Close()
				tasks := load.customers * load.each
				for i := range tasks {
					payload, err := json.Marshal(replicaTask{Customer: i % load.customers})
					require.NoError(b, err)
					_, err = client.Enqueue(asynq.NewTask("charge", payload))
					require.NoError(b, err)
				}
				order, err := json.Marshal(replica{Addr: server.Addr(), Work: load.work})
				require.NoError(b, err)
				var all []*processtest.Child
				for range processes {
					p := processtest.Self(b, replicaEnv+"="+string(order))
					require.Equal(b, "ready", p.Next())
					all = append(all, p)
				}
				b.ResetTimer()
				for _, p := range all {
					p.Tell("go")
				}
				rdb := server.Client(b)
				for rdb.LLen(b.Context(), replicaDone).Val() < int64(tasks) {
					time.Sleep(5 * time.Millisecond) // between two looks
				}
				b.StopTimer()
				took := b.Elapsed()
				require.Zero(b, rdb.Exists(b.Context(), replicaMet).Val(), "two handlers of a customer at a time")
				bound := max(time.Duration(load.each)*load.work, time.Duration(tasks)*load.work/time.Duration(processes*replicaWorkers))
				b.ReportMetric(took.Seconds(), "s")
				b.ReportMetric(float64(took)/float64(bound), "x-bound")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
