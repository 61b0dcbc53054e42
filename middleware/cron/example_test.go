package guardcron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Two processes have the same schedule. Each tick is run by one of them.
func ExampleJobs_AddFunc() {
	ctx := context.Background()
	store := memory.New() // in production single.New(rdb), for one
	ticks := make(chan time.Time, 10)
	for range 2 {
		g, _ := guard.New(store)
		defer g.Close(ctx)
		c := cron.New()
		jobs, err := guardcron.New(g, c)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer jobs.Close(ctx)
		_, err = jobs.AddFunc("heartbeat", "@every 1s", func(ctx context.Context) error {
			tick, _ := guardcron.Tick(ctx)
			ticks <- tick
			return nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		c.Start()
		defer c.Stop()
	}
	first, second := <-ticks, <-ticks
	fmt.Println("two different ticks:", first != second)
	// Output: two different ticks: true
}

// A schedule that can never fire is an error, and not a job that is silent for ever.
func ExampleJobs_AddFunc_refused() {
	ctx := context.Background()
	g, _ := guard.New(memory.New())
	defer g.Close(ctx)
	jobs, _ := guardcron.New(g, cron.New())
	defer jobs.Close(ctx)
	_, err := jobs.AddFunc("leap-report", "0 3 30 2 *", func(context.Context) error { return nil })
	fmt.Println(err)
	// Output: guardcron: job "leap-report": guard: schedule: never fires in the next five years
}

// Ticks for which no process was up are reported when one is.
func ExampleWithObserver_missed() {
	ctx := context.Background()
	g, _ := guard.New(memory.New())
	defer g.Close(ctx)
	ran, missed := make(chan time.Time, 10), make(chan guardcron.Record, 10)
	run := func() (stop func()) {
		c := cron.New()
		jobs, _ := guardcron.New(g, c, guardcron.WithStartDeadline(100*time.Millisecond), guardcron.WithObserver(func(r guardcron.Record) {
			if r.Outcome == guardcron.Missed {
				missed <- r
			}
		}))
		_, _ = jobs.AddFunc("heartbeat", "@every 1s", func(ctx context.Context) error {
			tick, _ := guardcron.Tick(ctx)
			ran <- tick
			return nil
		})
		c.Start()
		return func() {
			c.Stop()
			_ = jobs.Close(ctx)
		}
	}
	stop := run()
	last := <-ran
	stop()
	time.Sleep(1500 * time.Millisecond) // nobody is up
	stop = run()
	r := <-missed
	stop()
	fmt.Println(r.Job, r.Outcome, r.Tick.After(last))
	// Output: heartbeat missed true
}

// A job is run by hand, beside its schedule. What it returns comes back.
func ExampleJobs_RunNow() {
	ctx := context.Background()
	g, _ := guard.New(memory.New())
	defer g.Close(ctx)
	jobs, _ := guardcron.New(g, cron.New())
	defer jobs.Close(ctx)
	_, _ = jobs.AddFunc("nightly-report", "0 3 * * *", func(ctx context.Context) error {
		_, ok := guardcron.Tick(ctx)
		fmt.Println("for a tick:", ok)
		return nil
	})
	fmt.Println(jobs.RunNow(ctx, "nightly-report"))
	fmt.Println(jobs.RunNow(ctx, "weekly-report"))
	// Output:
	// for a tick: false
	// <nil>
	// guardcron: there is no job "weekly-report"
}

// A paused job is not started for ticks, by any process, until it is resumed.
func ExampleJobs_Pause() {
	ctx := context.Background()
	g, _ := guard.New(memory.New())
	defer g.Close(ctx)
	jobs, _ := guardcron.New(g, cron.New())
	defer jobs.Close(ctx)
	_ = jobs.Pause(ctx, "nightly-report")
	fmt.Println(jobs.Paused(ctx, "nightly-report"))
	_ = jobs.Resume(ctx, "nightly-report")
	fmt.Println(jobs.Paused(ctx, "nightly-report"))
	// Output:
	// true <nil>
	// false <nil>
}

// Who ran a job last, and what became of it, is on record for all processes.
func ExampleJobs_Records() {
	ctx := context.Background()
	g, _ := guard.New(memory.New())
	defer g.Close(ctx)
	jobs, _ := guardcron.New(g, cron.New())
	defer jobs.Close(ctx)
	_, _ = jobs.AddFunc("nightly-report", "0 3 * * *", func(context.Context) error { return fmt.Errorf("the printer is on fire") })
	_ = jobs.RunNow(ctx, "nightly-report")
	records, err := jobs.Records(ctx, "nightly-report", 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range records {
		fmt.Printf("%s %s: %s\n", r.Job, r.Outcome, r.Reason)
	}
	// Output: nightly-report failed: the printer is on fire
}

// An entry of an existing chain runs once for each tick of its schedule.
func ExampleJobs_Wrapper() {
	ctx := context.Background()
	store := memory.New()
	ran := make(chan string, 10)
	schedule := cron.Every(time.Second) // or that of cron.ParseStandard
	for range 2 {
		g, _ := guard.New(store)
		defer g.Close(ctx)
		c := cron.New()
		jobs, _ := guardcron.New(g, c)
		defer jobs.Close(ctx)
		once, err := jobs.Wrapper("nightly-report", schedule)
		if err != nil {
			fmt.Println(err)
			return
		}
		chain := cron.NewChain(cron.Recover(cron.DefaultLogger), once)
		c.Schedule(schedule, chain.Then(cron.FuncJob(func() { ran <- "the report" })))
		c.Start()
		defer c.Stop()
	}
	fmt.Println(<-ran)
	// Output: the report
}
