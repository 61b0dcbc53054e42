package guardscheduler_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// sending returns options with which a scheduler sends the IDs of the tasks that it enqueues.
func sending(ids chan<- string) *asynq.SchedulerOpts {
	return &asynq.SchedulerOpts{
		LogLevel: asynq.ErrorLevel,
		PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
			if err == nil {
				ids <- info.ID
			}
		},
	}
}

// Three replicas of one program, each with its scheduler. Here they run in one process.
func ExampleNew() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ids := make(chan string, 100)

	var replicas sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for range 3 {
		replicas.Go(func() {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer func() { _ = rdb.Close() }()
			g, err := guard.New(single.New(rdb), guard.WithNamespace("shop"))
			if err != nil {
				panic(err)
			}
			defer func() { _ = g.Close(context.Background()) }()

			scheduler, err := guardscheduler.New(g, asynq.RedisClientOpt{Addr: server.Addr()}, sending(ids))
			if err != nil {
				panic(err)
			}
			if _, err := scheduler.Register("@every 1s", asynq.NewTask("report", nil)); err != nil {
				panic(err)
			}
			if err := scheduler.Start(); err != nil {
				panic(err)
			}
			<-ctx.Done() // scheduler.Run() waits for SIGTERM
			scheduler.Shutdown()
		})
	}
	ticks := map[string]bool{}
	for range 3 {
		ticks[<-ids] = true
	}
	fmt.Println("3 tasks for", len(ticks), "ticks")
	stop()
	replicas.Wait()
	// Output: 3 tasks for 3 ticks
}

// jobs stands for a table of jobs that can be changed at any time.
type jobs struct{}

func (jobs) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	return []*asynq.PeriodicTaskConfig{{Cronspec: "@every 1s", Task: asynq.NewTask("report", nil)}}, nil
}

// Two replicas read the same table. Here they run in one process.
func ExampleNewManager() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	g, err := guard.New(single.New(rdb), guard.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = g.Close(context.Background()) }()

	ids := make(chan string, 100)
	for range 2 {
		manager, err := guardscheduler.NewManager(g, asynq.PeriodicTaskManagerOpts{
			PeriodicTaskConfigProvider: jobs{},
			RedisUniversalClient:       rdb,
			SyncInterval:               time.Minute, // when the table is read again
			SchedulerOpts:              sending(ids),
		})
		if err != nil {
			panic(err)
		}
		if err := manager.Start(); err != nil {
			panic(err)
		}
		defer manager.Shutdown()
	}
	ticks := map[string]bool{}
	for range 2 {
		ticks[<-ids] = true
	}
	fmt.Println("2 tasks for", len(ticks), "ticks")
	// Output: 2 tasks for 2 ticks
}

// A setting that cannot work is refused by its name.
func ExampleWithStartDeadline() {
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	_, err := guardscheduler.New(g, asynq.RedisClientOpt{}, nil, guardscheduler.WithStartDeadline(0))
	fmt.Println(err)
	// Output: guard: WithStartDeadline(0s): must be positive
}

// The same task for two queues is two entries, which their names tell apart.
func ExampleTickName() {
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	scheduler, err := guardscheduler.New(g, asynq.RedisClientOpt{Addr: "localhost:6379"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Shutdown()
	for _, queue := range []string{"europe", "asia"} {
		_, err := scheduler.Register("0 3 * * *", asynq.NewTask("report", nil), asynq.Queue(queue), guardscheduler.TickName(queue))
		fmt.Println(err)
	}
	_, err = scheduler.Register("0 4 * * *", asynq.NewTask("backup", nil))
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// <nil>
}
