package guardcron_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Two processes have the same schedule. Each tick is run by one of them.
func ExampleJobs_AddFunc() {
	ctx := context.Background()
	store := memory.New() // in production single.New(rdb), for one
	ticks := make(chan time.Time, 10)
	for range 2 {
		g, _ := guard.New(store, guard.WithNamespace("shop"))
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
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
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
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	ran, missed := make(chan time.Time, 10), make(chan guardcron.Record, 10)
	run := func() (stop func()) {
		c := cron.New()
		jobs, _ := guardcron.New(g, c, guardcron.WithStartDeadline(100*time.Millisecond), guardcron.WithObserver(func(r guardcron.Record) {
			if r.Result == guardcron.Missed {
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
	time.Sleep(1500 * time.Millisecond) // no process is up
	stop = run()
	r := <-missed
	stop()
	fmt.Println(r.Job, r.Result, r.Tick.After(last))
	// Output: heartbeat missed true
}

// A run takes longer than the time between two ticks. The next tick waits for its end, instead of
// being skipped.
func ExampleWithOverlap() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	runs := make(chan guardcron.Record, 10)
	c := cron.New()
	jobs, _ := guardcron.New(g, c, guardcron.WithObserver(func(r guardcron.Record) { runs <- r }))
	defer jobs.Close(ctx)
	slowAtFirst := sync.OnceFunc(func() { time.Sleep(1100 * time.Millisecond) })
	_, _ = jobs.AddFunc("import", "@every 1s", func(context.Context) error {
		slowAtFirst()
		return nil
	}, guardcron.WithOverlap(guardcron.Wait))
	c.Start()
	defer c.Stop()
	first, second := <-runs, <-runs
	fmt.Println(first.Result, second.Result)
	fmt.Println("due during the first run:", second.Tick.Before(first.End))
	fmt.Println("started after it:", !second.Start.Before(first.End))
	// Output:
	// ran ran
	// due during the first run: true
	// started after it: true
}

// No process was up when ticks were due. The next process to start runs the newest of them.
func ExampleWithCatchUp() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	ran := make(chan time.Time, 10)
	run := func() (stop func()) {
		c := cron.New()
		jobs, _ := guardcron.New(g, c, guardcron.WithCatchUp(1), guardcron.WithStartDeadline(100*time.Millisecond))
		_, _ = jobs.AddFunc("statistics", "@every 1s", func(ctx context.Context) error {
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
	<-ran
	stop()
	time.Sleep(1500 * time.Millisecond) // no process is up
	restart := time.Now()
	stop = run()
	for tick := range ran {
		if tick.Before(restart) {
			fmt.Println("ran a tick that was due before the start")
			break
		}
	}
	stop()
	// Output: ran a tick that was due before the start
}

// RunNow runs a job by hand, in addition to its schedule, and returns the job's error.
func ExampleJobs_RunNow() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
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
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	jobs, _ := guardcron.New(g, cron.New())
	defer jobs.Close(ctx)
	_ = jobs.Pause(ctx, "nightly-report", 0, inspect.By{Actor: "alice"})
	fmt.Println(jobs.Paused(ctx, "nightly-report"))
	_ = jobs.Resume(ctx, "nightly-report", inspect.By{Actor: "alice"})
	fmt.Println(jobs.Paused(ctx, "nightly-report"))
	// Output:
	// true <nil>
	// false <nil>
}

// The records of a job show all processes which of them ran it last, and the outcome.
func ExampleJobs_Records() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
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
		fmt.Printf("%s %s: %s\n", r.Job, r.Result, r.Reason)
	}
	// Output: nightly-report failed: the printer is on fire
}

// A dead man's switch: a monitor outside expects a ping after each success, and raises the alarm if
// none comes in time. Services such as healthchecks.io or a Prometheus Pushgateway do so.
//
// WithObserver and Missed report what a process that is up has found. If no process is up, none
// can report: only the monitor notices, by its own clock, after the period of the job and a grace
// that should be longer than the start deadline. When a process is up again, it reports the ticks
// as Missed, or catches up with them, and the next success ends the alarm.
func Example_deadMansSwitch() {
	pings := make(chan string, 10)
	monitor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { pings <- r.URL.Path }))
	defer monitor.Close()

	// ping reports a success to the monitor. It has a limit of its own: the next tick may wait for
	// it.
	client := &http.Client{Timeout: 10 * time.Second}
	ping := func(r guardcron.Record) {
		if r.Result != guardcron.Ran {
			return
		}
		response, err := client.Get(monitor.URL + "/ping/" + r.Job)
		if err != nil {
			return // the monitor notices that no ping has come
		}
		_ = response.Body.Close()
	}

	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	jobs, _ := guardcron.New(g, cron.New(), guardcron.WithObserver(ping))
	defer jobs.Close(ctx)
	_, _ = jobs.AddFunc("nightly-report", "0 3 * * *", func(context.Context) error { return nil })
	_ = jobs.RunNow(ctx, "nightly-report")
	fmt.Println(<-pings)
	// Output: /ping/nightly-report
}

// Jobs with one spec do not all start at one instant.
func ExampleWithJitter() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	c := cron.New(cron.WithLocation(time.UTC))
	jobs, _ := guardcron.New(g, c, guardcron.WithJitter(10*time.Minute))
	defer jobs.Close(ctx)
	midnight := time.Date(2026, time.November, 22, 0, 0, 0, 0, time.UTC)
	starts := map[time.Time]bool{}
	for _, name := range []string{"invoices", "reminders", "statistics"} {
		id, _ := jobs.AddFunc(name, "0 3 * * *", func(context.Context) error { return nil })
		starts[c.Entry(id).Schedule.Next(midnight)] = true
	}
	fmt.Println(len(starts), "different instants")
	// Output: 3 different instants
}

// A job that is removed does not start any more. Its name can be used again.
func ExampleJobs_Remove() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	jobs, _ := guardcron.New(g, cron.New())
	defer jobs.Close(ctx)
	nothing := func(context.Context) error { return nil }
	_, _ = jobs.AddFunc("nightly-report", "0 3 * * *", nothing)
	fmt.Println(jobs.Remove("nightly-report"))
	fmt.Println(jobs.RunNow(ctx, "nightly-report"))
	_, err := jobs.AddFunc("nightly-report", "0 4 * * *", nothing)
	fmt.Println(err)
	// Output:
	// <nil>
	// guardcron: there is no job "nightly-report"
	// <nil>
}

// The clocks of this country are set back at 03:00 on one night. The backup runs once in it.
func ExampleWithLocalTicks() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	c := cron.New(cron.WithLocation(berlin))
	jobs, err := guardcron.New(g, c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer jobs.Close(ctx)
	_, err = jobs.AddFunc("backup", "30 2 * * *", func(context.Context) error { return nil }, guardcron.WithLocalTicks())
	fmt.Println(err)
	// Output: <nil>
}

// The first run of a tick fails. The other process, which has waited for it, runs the tick again.
func ExampleWithRerun() {
	ctx := context.Background()
	store := memory.New() // in production single.New(rdb), for one
	var runs atomic.Int64
	ticks := make(chan time.Time, 100)
	for range 2 {
		g, _ := guard.New(store, guard.WithNamespace("shop"))
		defer g.Close(ctx)
		c := cron.New(cron.WithLogger(cron.DiscardLogger))
		jobs, err := guardcron.New(g, c)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer jobs.Close(ctx)
		_, _ = jobs.AddFunc("import", "@every 1s", func(ctx context.Context) error {
			tick, _ := guardcron.Tick(ctx)
			ticks <- tick
			if runs.Add(1) == 1 {
				return errors.New("the file is not there yet")
			}
			return nil
		}, guardcron.WithRerun())
		c.Start()
		defer c.Stop()
	}
	first, second := <-ticks, <-ticks
	fmt.Println("the same tick:", first.Equal(second))
	// Output: the same tick: true
}

// A job runs nightly, and at most once a day also by hand. A run that finds it done is on record as
// skipped.
func ExampleSkipped() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	jobs, _ := guardcron.New(g, cron.New())
	defer jobs.Close(ctx)
	_, _ = jobs.AddFunc("nightly-report", "0 3 * * *", func(ctx context.Context) error {
		return g.Do(ctx, "nightly-report", func(context.Context) error {
			fmt.Println("building")
			return nil
		}, guard.WithOncePer(24*time.Hour))
	})
	for range 2 {
		err := jobs.RunNow(ctx, "nightly-report")
		fmt.Println(err == nil, errors.Is(err, guard.ErrDone))
	}
	records, _ := jobs.Records(ctx, "nightly-report", 1)
	fmt.Println(records[0].Result)
	// Output:
	// building
	// true false
	// false true
	// skipped
}
