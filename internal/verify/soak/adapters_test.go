package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/verify/history"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// serveHTTP serves requests with an Idempotency-Key, and says where.
func (w *worker) serveHTTP() (end func(context.Context) error, err error) {
	once, err := guardhttp.New(w.guard, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(), idempotency.WithWait(ttl), idempotency.WithOnce(time.Hour))
	if err != nil {
		return nil, err
	}
	handler := once(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		lease, _ := guard.FromContext(r.Context())
		if err := w.effect(r.Context(), lease.Key(), "request "+idempotency.Key(r.Context()), upTo(60*time.Millisecond)); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError) // which is not kept
			return
		}
		rw.WriteHeader(http.StatusCreated)
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: soon}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Println("listens", "http://"+listener.Addr().String())
	return func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// A job is the payload of a task. Several tasks may have one.
type job struct{ Job string }

// serveTasks serves tasks, whose jobs are each done once.
func (w *worker) serveTasks() (end func(context.Context) error, err error) {
	at := asynq.RedisClientOpt{Addr: w.Queue}
	client, inspector := asynq.NewClient(at), asynq.NewInspector(at)
	once, err := guardasynq.New(w.guard, nil, guardasynq.WithClient(client, inspector), guardasynq.WithOnce(time.Hour, guardasynq.FromJSON("Job")),
		guardasynq.WithDelay(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	config := asynq.Config{
		Concurrency: 4, TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: time.Second, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
	}
	server := asynq.NewServer(at, guardasynq.Configure(config))
	byID, err := guardasynq.New(w.guard, nil, guardasynq.WithClient(client, inspector), guardasynq.WithOnce(time.Hour, guardasynq.FromTaskID()),
		guardasynq.WithDelay(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	handler := asynq.NewServeMux()
	handler.Handle("job", once(asynq.HandlerFunc(w.task)))
	handler.Handle(scheduled, byID(asynq.HandlerFunc(w.scheduled)))
	err = server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		delivery := w.log.Begin(history.Event{Kind: deliveryKind, Holder: id})
		defer w.log.End(delivery)
		return handler.ProcessTask(ctx, task)
	}))
	return func(context.Context) error {
		server.Shutdown()
		return errors.Join(client.Close(), inspector.Close())
	}, err
}

func (w *worker) task(ctx context.Context, task *asynq.Task) error {
	var j job
	if err := json.Unmarshal(task.Payload(), &j); err != nil {
		return err
	}
	lease, _ := guard.FromContext(ctx)
	return w.effect(ctx, lease.Key(), "task "+j.Job, upTo(60*time.Millisecond))
}

// scheduled is the type of the task that the schedulers of all workers enqueue each second.
const scheduled = "scheduled"

func (w *worker) scheduled(ctx context.Context, task *asynq.Task) error {
	_, id, _ := strings.Cut(guardasynq.TaskID(ctx, task), "@")
	text, _, _ := strings.Cut(id, "~")
	tick, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return err
	}
	lease, _ := guard.FromContext(ctx)
	return w.effect(ctx, lease.Key(), tickName(scheduled, tick.Unix()), upTo(60*time.Millisecond))
}

// serveScheduler enqueues a task each second, in one of the workers.
func (w *worker) serveScheduler() (end func(context.Context) error, err error) {
	s, err := guardscheduler.New(w.guard, asynq.RedisClientOpt{Addr: w.Queue}, &asynq.SchedulerOpts{
		LogLevel: asynq.FatalLevel,
		PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
			var missed *guardscheduler.MissedError
			if errors.As(err, &missed) {
				w.report(scheduled, missed.First, missed.Last)
			}
		},
	}, guardscheduler.WithStartDeadline(startDeadline))
	if err == nil {
		_, err = s.Register("@every 1s", asynq.NewTask(scheduled, nil), asynq.MaxRetry(10_000), asynq.Retention(time.Hour))
	}
	if err == nil {
		err = s.Start()
	}
	return func(context.Context) error {
		s.Shutdown()
		return nil
	}, err
}

// report notes that a worker has reported ticks of a job that did not run, or whose run did not
// end well.
func (w *worker) report(job string, first, last time.Time) {
	w.log.End(w.log.Begin(history.Event{Kind: reportKind, Key: job, Holder: fmt.Sprint(first.Unix(), " ", last.Unix())}))
}

// startDeadline is how late a tick may be. Most of the long outages last longer.
const startDeadline = 10 * time.Second

// cronJobs are the entries of every worker, each second, and how long they take.
var cronJobs = map[string]time.Duration{"short": 10 * time.Millisecond, "long": 500 * time.Millisecond}

func (w *worker) serveCron() (end func(context.Context) error, err error) {
	c := cron.New(cron.WithSeconds(), cron.WithLogger(cron.DiscardLogger))
	jobs, err := guardcron.New(w.guard, c, guardcron.WithOverlap(guardcron.Wait), guardcron.WithRerun(), guardcron.WithStartDeadline(startDeadline),
		guardcron.WithObserver(func(r guardcron.Record) {
			if r.Result != guardcron.Ran && !r.Tick.IsZero() {
				last := r.Until
				if last.IsZero() {
					last = r.Tick
				}
				w.report(r.Job, r.Tick, last)
			}
		}))
	if err != nil {
		return nil, err
	}
	for name, takes := range cronJobs {
		_, err := jobs.AddFunc(name, "* * * * * *", func(ctx context.Context) error {
			tick, _ := guardcron.Tick(ctx)
			// that of the tick, which is left done
			key := fmt.Sprintf("cron:%s@%s", name, tick.UTC().Format(time.RFC3339Nano))
			return w.effect(ctx, key, tickName(name, tick.Unix()), takes)
		})
		if err != nil {
			return nil, err
		}
	}
	c.Start()
	return func(ctx context.Context) error {
		c.Stop()
		return jobs.Close(ctx)
	}, nil
}

func tickName(name string, second int64) string { return fmt.Sprintf("tick %s %d", name, second) }
