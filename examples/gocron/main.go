// Gocron is a service that runs in several replicas, with a schedule of go-co-op/gocron. The
// Elector lets the scheduler of one replica, the leader, run the jobs. When it stops or dies,
// another one becomes the leader.
//
//	go run ./examples/gocron -redis 127.0.0.1:6379           in two terminals; stop one
//	go run ./examples/gocron -redis 127.0.0.1:6379 -per job  each job by itself
//
// gocron does not say for which tick a run is. So neither an Elector nor a Locker can run each tick
// once: ticks between two leaders are lost. If each tick counts, use robfig/cron with package
// guardcron, as examples/kubernetes does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "where the leases are")
	per := flag.String("per", "scheduler", "what runs in one replica: all jobs of a scheduler, or each job by itself")
	flag.Parse()
	if err := run(*addr, *per); err != nil {
		fmt.Fprintln(os.Stderr, "gocron:", err)
		os.Exit(1)
	}
}

// run runs the schedule until the process is to stop.
func run(addr, per string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close() // last: the Guard still needs it
	g, err := guard.New(single.New(rdb), guard.WithNamespace("reports"), guard.WithTTL(10*time.Second))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(context.Background())) }()

	var once gocron.SchedulerOption
	switch per {
	case "scheduler":
		elector, err := guardgocron.NewElector(g, "reports")
		if err != nil {
			return err
		}
		defer func() { _ = elector.Close(context.Background()) }() // another replica leads at once
		once = gocron.WithDistributedElector(elector)
	case "job":
		// The hold is longer than clocks differ, and shorter than the time between two ticks.
		locker, err := guardgocron.NewLocker[gocron.Lock](g, guard.WithMinHold(1500*time.Millisecond))
		if err != nil {
			return err
		}
		once = gocron.WithDistributedLocker(locker)
	default:
		return fmt.Errorf("-per %s: must be scheduler or job", per)
	}
	scheduler, err := gocron.NewScheduler(once)
	if err != nil {
		return err
	}
	// Name each job: the default is the name of the function, which changes as code is moved.
	_, err = scheduler.NewJob(gocron.CronJob("*/2 * * * * *", true), gocron.NewTask(buildReport), gocron.WithName("report"))
	if err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	return scheduler.Shutdown() // waits for the runs that have begun
}

func buildReport() { fmt.Println("report at", time.Now().UTC().Format(time.DateTime)) }
