// Reports is a service that runs in several replicas with the same schedule. Each tick runs once,
// in one of them. It stops well when Kubernetes sends SIGTERM.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// grace is how long a run may go on after SIGTERM. With the sleep of preStop, it is less than
// terminationGracePeriodSeconds.
const grace = 25 * time.Second

func main() {
	if err := run(); err != nil {
		slog.Error("stopped", "error", err)
		os.Exit(1)
	}
}

func run() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	opts, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return errors.New("REDIS_URL must be such as rediss://user:password@redis:6379/0")
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close() // last: the Guard still needs it
	g, err := guard.New(single.New(rdb), guard.WithNamespace("reports"), guard.WithLabel(pod()))
	if err != nil {
		return err
	}
	c := cron.New()
	jobs, err := guardcron.New(g, c)
	if err != nil {
		return err
	}
	_, err = jobs.AddFunc("nightly-report", cmp.Or(os.Getenv("SCHEDULE"), "0 3 * * *"), buildReport)
	if err != nil {
		return err
	}
	probes, err := serveProbes(ctx, rdb)
	if err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()

	over, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	c.Stop() // no new ticks
	return errors.Join(jobs.Close(over), g.Close(over), probes.Shutdown(over))
}

// pod names this replica to the others: it is what guard.BusyError.Label says.
func pod() string {
	host, _ := os.Hostname()
	return cmp.Or(os.Getenv("POD_NAME"), host)
}

// serveProbes answers GET /ready: 200 if Redis answers and the pod is not stopping. Do not make it
// a liveness probe, because an outage of Redis would then restart all pods.
func serveProbes(ctx context.Context, rdb *redis.Client) (*http.Server, error) {
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("PROBES_ADDR"), ":8080"))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		if err := cmp.Or(ctx.Err(), rdb.Ping(r.Context()).Err()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	fmt.Println("probes on", listener.Addr())
	return server, nil
}

func buildReport(ctx context.Context) error {
	tick, _ := guardcron.Tick(ctx)
	fmt.Println("report for", tick.Format(time.RFC3339))
	return ctx.Err()
}
