package guardasynq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// must is for what cannot fail in an example.
func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

// A queue is what the examples work with: an asynq client and an inspector, and a Redis inside.
type queue struct {
	conn      asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
}

func startQueue() (q queue, stop func()) {
	redis, err := miniredis.Run()
	must(err)
	q.conn = asynq.RedisClientOpt{Addr: redis.Addr()}
	q.client, q.inspector = asynq.NewClient(q.conn), asynq.NewInspector(q.conn)
	return q, func() {
		must(q.client.Close(), q.inspector.Close())
		redis.Close()
	}
}

func (q queue) enqueue(task *asynq.Task, opts ...asynq.Option) {
	_, err := q.client.Enqueue(task, opts...)
	must(err)
}

// serve runs a server with four workers.
func (q queue) serve(h asynq.Handler) (stop func()) {
	config := asynq.Config{
		Concurrency:       4,
		TaskCheckInterval: 20 * time.Millisecond, // asynq's default is a second
		LogLevel:          asynq.FatalLevel,
	}
	config = guardasynq.Configure(config)
	server := asynq.NewServer(q.conn, config)
	must(server.Start(h))
	return server.Shutdown
}

// Three tasks for one customer and four workers: they run one after the other. The second and the
// third have no attempt to lose.
func ExampleNew() {
	q, stop := startQueue()
	defer stop()
	// with several processes, single.New(redisClient)
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	must(err)
	byCustomer, err := guardasynq.New(g, guardasynq.FromJSON("customer"), guardasynq.WithClient(q.client, q.inspector))
	must(err)

	var mu sync.Mutex
	var running, most int
	var all sync.WaitGroup
	all.Add(3)
	mux := asynq.NewServeMux()
	mux.Use(byCustomer)
	mux.HandleFunc("charge", func(ctx context.Context, _ *asynq.Task) error {
		defer all.Done()
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()

		time.Sleep(10 * time.Millisecond) // the work

		mu.Lock()
		defer mu.Unlock()
		running--
		fmt.Println("charged customer", guardasynq.Key(ctx), "under a fence:", guard.Fence(ctx) > 0)
		return nil
	})
	for range 3 {
		q.enqueue(asynq.NewTask("charge", []byte(`{"customer":42}`)), asynq.MaxRetry(0))
	}
	shutdown := q.serve(mux)
	all.Wait()
	shutdown() // first the servers,
	must(g.Close(context.Background()))
	fmt.Println("at a time:", most)
	// Output:
	// charged customer 42 under a fence: true
	// charged customer 42 under a fence: true
	// charged customer 42 under a fence: true
	// at a time: 1
}

// Six tasks for one customer and four workers: two run at a time, in all processes together.
func ExampleWithLease() {
	q, stop := startQueue()
	defer stop()
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	must(err)
	twoPerCustomer, err := guardasynq.New(g, guardasynq.FromJSON("customer"),
		guardasynq.WithClient(q.client, q.inspector), guardasynq.WithLease(guard.WithLimit(2)))
	must(err)

	var mu sync.Mutex
	var running, most int
	var all sync.WaitGroup
	all.Add(6)
	mux := asynq.NewServeMux()
	mux.Use(twoPerCustomer)
	mux.HandleFunc("export", func(context.Context, *asynq.Task) error {
		defer all.Done()
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()

		time.Sleep(50 * time.Millisecond) // the work

		mu.Lock()
		defer mu.Unlock()
		running--
		return nil
	})
	for range 6 {
		q.enqueue(asynq.NewTask("export", []byte(`{"customer":42}`)), asynq.MaxRetry(0))
	}
	shutdown := q.serve(mux)
	all.Wait()
	shutdown()
	must(g.Close(context.Background()))
	fmt.Println("at a time:", most)
	// Output: at a time: 2
}

// A task that was enqueued twice runs once in a day, and the second one gets the first one's
// result.
func ExampleWithOnce() {
	q, stop := startQueue()
	defer stop()
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	must(err)
	ended := make(chan string)
	oncePerReport, err := guardasynq.New(g, nil, // or the key of what must not run at a time
		guardasynq.WithClient(q.client, q.inspector),
		guardasynq.WithOnce(24*time.Hour, guardasynq.FromPayload()),
		guardasynq.WithLease(guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { ended <- o.Result }})))
	must(err)
	shutdown := q.serve(oncePerReport(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		_, err := task.ResultWriter().Write([]byte("12 pages"))
		return err
	})))

	for range 2 {
		q.enqueue(asynq.NewTask("report", []byte("2026-11-21")), asynq.Retention(time.Hour))
		fmt.Println(<-ended)
	}
	shutdown()
	must(g.Close(context.Background()))
	tasks, err := q.inspector.ListCompletedTasks("default")
	must(err)
	for _, task := range tasks {
		fmt.Println(string(task.Result))
	}
	// Output:
	// ran
	// done
	// 12 pages
	// 12 pages
}

// A handler that finds the service busy has its task come back, on its only attempt.
func ExampleSnooze() {
	q, stop := startQueue()
	defer stop()
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	must(err)
	byCustomer, err := guardasynq.New(g, guardasynq.FromJSON("customer"), guardasynq.WithClient(q.client, q.inspector))
	must(err)
	done := make(chan struct{})
	calls := 0
	mux := asynq.NewServeMux()
	mux.Handle("charge", byCustomer(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if calls++; calls < 3 {
			return fmt.Errorf("the bank is busy: %w", guardasynq.Snooze(time.Second))
		}
		fmt.Println(guardasynq.TaskID(ctx, task), "was charged in call", calls)
		close(done)
		return nil
	})))
	shutdown := q.serve(mux)
	q.enqueue(asynq.NewTask("charge", []byte(`{"customer": 42}`)), asynq.TaskID("invoice 7"), asynq.MaxRetry(0))
	<-done
	shutdown()
	must(g.Close(context.Background()))
	// Output: invoice 7 was charged in call 3
}

// A middleware over all types of a mux, of which some have no customer.
func ExampleOptional() {
	key := guardasynq.Optional(guardasynq.FromJSON("customer"))
	_, err := key(context.Background(), asynq.NewTask("cleanup", nil))
	fmt.Println(errors.Is(err, guardasynq.ErrUnguarded))
	customer, err := key(context.Background(), asynq.NewTask("charge", []byte(`{"customer": 42}`)))
	fmt.Println(customer, err)
	// Output:
	// true
	// 42 <nil>
}

// Whatever is asked for while an index is built leads to one more build, with the newest of it.
func ExampleWithBusy() {
	q, stop := startQueue()
	defer stop()
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	must(err)
	coalesced := make(chan bool)
	oneMore, err := guardasynq.New(g, guardasynq.FromType(),
		guardasynq.WithClient(q.client, q.inspector),
		guardasynq.WithBusy(guardasynq.Coalesce),
		guardasynq.WithLease(guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
			if o.Result == "coalesced" {
				coalesced <- true
			}
		}})))
	must(err)
	begun, goOn := make(chan string), make(chan bool)
	shutdown := q.serve(oneMore(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		begun <- string(task.Payload())
		<-goOn
		return nil
	})))

	q.enqueue(asynq.NewTask("index", []byte("version 1")))
	fmt.Println("builds", <-begun)
	for _, version := range []string{"version 2", "version 3", "version 4"} {
		q.enqueue(asynq.NewTask("index", []byte(version)))
		<-coalesced
	}
	goOn <- true
	fmt.Println("builds", <-begun)
	goOn <- true
	shutdown()
	must(g.Close(context.Background()))
	info, err := q.inspector.GetQueueInfo("default")
	must(err)
	fmt.Println("left:", info.Size)
	// Output:
	// builds version 1
	// builds version 4
	// left: 0
}
