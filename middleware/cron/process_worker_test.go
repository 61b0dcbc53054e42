package guardcron_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The procOrder of a process, as JSON.
const procEnv = "ONERUN_TEST_CRON"

// A procOrder says which jobs a process runs, and over which store. Several addresses make a
// RedLock.
type procOrder struct {
	Addrs []string
	Log   string // the address of the resource to which the jobs write
	Who   string
	Ahead time.Duration // its clock
	TTL   time.Duration
	Jobs  []procJob
}

// A procJob is one entry. Its work takes Takes, and fails for each tick that is a multiple of
// FailEach seconds.
type procJob struct {
	Name     string
	Spec     string // "" is each second
	Takes    time.Duration
	FailEach int64
	Overlap  guardcron.Overlap
	CatchUp  int
	Deadline time.Duration
}

func (j procJob) takesSeconds() bool { return j.Takes >= 2*time.Second }

// A procWorker is what a process has: the same in a process of its own, and in that of the test.
type procWorker struct {
	order procOrder
	log   *procLog
	cron  *cron.Cron
	jobs  *guardcron.Jobs
	guard *guard.Guard
	conns []*redis.Client

	// A run holds it from before its last write until its leases are released, and so does a
	// report of a missed tick. A process that is killed or paused in between would do a tick
	// twice, as the package documentation says.
	ending sync.RWMutex
	mu     sync.Mutex
	ends   map[string]bool // the leases that hold it, by key and fence

	long atomic.Int32 // runs under way that take seconds
}

func newProcWorker(order procOrder) (*procWorker, error) {
	w := &procWorker{order: order, ends: map[string]bool{}, cron: cron.New(cron.WithSeconds(), cron.WithLogger(cron.DiscardLogger))}
	logConn := redis.NewClient(&redis.Options{Addr: order.Log})
	w.log, w.conns = &procLog{rdb: logConn}, append(w.conns, logConn)
	var lockers []guard.Locker
	for _, addr := range order.Addrs {
		conn := redis.NewClient(&redis.Options{Addr: addr})
		w.conns = append(w.conns, conn)
		lockers = append(lockers, single.New(conn))
	}
	locker := lockers[0]
	if len(lockers) > 1 {
		locker = redlock.New(lockers)
	}
	var err error
	if w.guard, err = guard.New(locker, guard.WithNamespace("test"), guard.WithTTL(order.TTL)); err != nil {
		return nil, err
	}
	w.jobs, err = guardcron.New(w.guard, w.cron,
		guardcron.WithHistory(1500),
		guardcron.WithLease(guard.WithHook(guard.Hook{Release: w.released})),
		guardcron.WithObserver(func(r guardcron.Record) { w.report("record", r) }),
		onMissed(func(r guardcron.Record) {
			last := r.Tick
			if r.Ticks > 0 {
				last = r.Until // whose lease is the last to be released
			}
			w.end("cron:"+r.Job+"@"+last.Format(time.RFC3339Nano), r.Fence)
			w.report("missed", r)
		}))
	if err != nil {
		return nil, err
	}
	guardcron.SetClock(w.jobs, order.Ahead)
	guardcron.SetProcess(w.jobs, order.Who)
	for _, j := range order.Jobs {
		opts := []guardcron.Option{guardcron.WithOverlap(j.Overlap), guardcron.WithCatchUp(j.CatchUp)}
		if j.Deadline > 0 {
			opts = append(opts, guardcron.WithStartDeadline(j.Deadline))
		}
		if _, err := w.jobs.AddFunc(j.Name, cmp.Or(j.Spec, "* * * * * *"), func(ctx context.Context) error { return w.run(ctx, j) }, opts...); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// run is what each job does: it writes its beginning to the resource, takes its time, and writes
// its end.
func (w *procWorker) run(ctx context.Context, j procJob) error {
	tick, _ := guardcron.Tick(ctx)
	e := procEvent{Kind: "begin", Job: j.Name, Tick: tick.UnixMilli(), Who: w.order.Who, Fence: guard.Fence(ctx), Takes: j.Takes.Milliseconds()}
	if err := w.log.write(e); err != nil {
		return err
	}
	if j.takesSeconds() {
		w.long.Add(1)
		defer w.long.Add(-1)
	}
	select {
	case <-time.After(j.Takes): // the work
	case <-ctx.Done():
		e.Kind, e.Reason = "broken", context.Cause(ctx).Error()
		return errors.Join(context.Cause(ctx), w.log.write(e))
	}
	if j.FailEach > 0 && tick.Unix()%j.FailEach == 0 {
		e.Kind = "failed"
		return errors.Join(errors.New("this tick fails"), w.log.write(e))
	}
	w.end("cron:"+j.Name, e.Fence)
	if ctx.Err() != nil { // the process was paused meanwhile
		e.Kind, e.Reason = "broken", context.Cause(ctx).Error()
	} else {
		e.Kind = "end"
	}
	return w.log.write(e)
}

// end delays the end of the process until the lease is released.
func (w *procWorker) end(key string, fence uint64) {
	w.ending.RLock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[fmt.Sprint(key, fence)] = true
}

// released is called when a lease was released, or could not be.
func (w *procWorker) released(_ context.Context, e guard.ReleaseEvent) {
	if e.Err != nil {
		job, at, _ := strings.Cut(strings.TrimPrefix(e.Key, "cron:"), "@")
		kept := procEvent{Kind: "kept", Job: job, Who: w.order.Who, Fence: e.Fence, Reason: e.Err.Error()}
		if tick, err := time.Parse(time.RFC3339Nano, at); err == nil {
			kept.Tick = tick.UnixMilli()
		}
		_ = w.log.write(kept)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if run := fmt.Sprint(e.Key, e.Fence); w.ends[run] {
		delete(w.ends, run)
		w.ending.RUnlock()
	}
}

func (w *procWorker) report(kind string, r guardcron.Record) {
	e := procEvent{Kind: kind, Job: r.Job, Who: w.order.Who, Fence: r.Fence, Result: string(r.Result), Reason: r.Reason}
	if r.Result == guardcron.Unavailable {
		e.Kind = "here"
	}
	for tick := range ticksOf(r) {
		e.Tick = tick
		_ = w.log.write(e)
	}
}

// close ends it as a process does that gets SIGTERM: what runs may run for some time.
func (w *procWorker) close(grace time.Duration) error {
	w.cron.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := errors.Join(w.jobs.Close(ctx), w.guard.Close(ctx))
	for _, conn := range w.conns {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// cronProcess is a process that does what procEnv says, until it gets SIGTERM. On SIGUSR1 it dies,
// and on SIGUSR2 it stops until SIGCONT. It logs that before.
func cronProcess() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	var order procOrder
	err := json.Unmarshal([]byte(os.Getenv(procEnv)), &order)
	var w *procWorker
	if err == nil {
		w, err = newProcWorker(order)
	}
	if err != nil {
		fmt.Println("fails", err)
		os.Exit(1)
	}
	w.cron.Start()
	w.cron.Entries() // it answers when it has worked out when each entry is due
	fmt.Println("runs")
	for s := range signals {
		switch s {
		case syscall.SIGUSR1:
			w.halt("dies", syscall.SIGKILL)
		case syscall.SIGUSR2:
			w.halt("freezes", syscall.SIGSTOP)
		default:
			if err := w.close(10 * time.Second); err != nil {
				fmt.Println("fails", err)
				os.Exit(1)
			}
			fmt.Println("ended")
			return
		}
	}
}

// halt sends this process a signal that stops it at once, but not between a last write and its
// end. If it has a job that takes seconds, that is in the middle of a run of it.
func (w *procWorker) halt(kind string, s syscall.Signal) {
	waits := slices.ContainsFunc(w.order.Jobs, procJob.takesSeconds)
	for {
		// Lock would keep other runs from their ends meanwhile, for seconds
		if w.ending.TryLock() {
			if !waits || w.long.Load() > 0 {
				break
			}
			w.ending.Unlock()
		}
		time.Sleep(time.Millisecond)
	}
	defer w.ending.Unlock()
	_ = w.log.write(procEvent{Kind: kind, Who: w.order.Who})
	_ = syscall.Kill(os.Getpid(), s)
}
