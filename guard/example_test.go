package guard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
)

// Build a report once a day, on the replica that gets the key first.
func Example() {
	g, err := guard.New(memory.New()) // or single.New(rdb), for several processes
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	build := func(context.Context) error {
		fmt.Println("building the report")
		return nil
	}
	for range 3 {
		err := g.Do(ctx, "report:2026-11-21", build, guard.WithOnce(24*time.Hour))
		switch {
		case errors.Is(err, guard.ErrBusy):
			fmt.Println("another process is building it")
		case errors.Is(err, guard.ErrDone):
			fmt.Println("it has run already")
		case err != nil:
			fmt.Println(err)
		}
	}
	// Output:
	// building the report
	// it has run already
	// it has run already
}

// At most one run at a time. A caller that finds the key busy learns the label of the holder and
// when its lease ends at the latest.
func ExampleGuard_Do() {
	g, _ := guard.New(memory.New(), guard.WithLabel("web-1"), guard.WithTTL(10*time.Second))
	ctx := context.Background()

	_ = g.Do(ctx, "account:17", func(context.Context) error {
		err := g.Do(ctx, "account:17", func(context.Context) error { return nil })
		var busy *guard.BusyError
		if errors.As(err, &busy) {
			fmt.Printf("%s holds it for up to %v\n", busy.Label, busy.Left.Round(time.Second))
		}
		return nil
	})
	// Output: web-1 holds it for up to 10s
}

// Wait for the key for up to a minute.
func ExampleWithWait() {
	g, _ := guard.New(memory.New())
	ctx := context.Background()
	lease, _ := g.Acquire(ctx, "account:17")
	go func() {
		fmt.Println("first")
		_ = lease.Release(ctx)
	}()
	_ = g.Do(ctx, "account:17", func(context.Context) error {
		fmt.Println("second")
		return nil
	}, guard.WithWait(time.Minute))
	// Output:
	// first
	// second
}

// The report is built once a day. A run that fails leaves no marker, so that it can run again.
func ExampleWithOnce() {
	g, _ := guard.New(memory.New())
	build := func(context.Context) error {
		fmt.Println("building the report")
		return nil
	}
	for range 2 {
		err := g.Do(context.Background(), "report:2026-11-21", build, guard.WithOnce(24*time.Hour))
		if errors.Is(err, guard.ErrDone) {
			fmt.Println("it was built before")
		}
	}
	// Output:
	// building the report
	// it was built before
}

// Who has done the work, and when?
func ExampleDoneError() {
	g, _ := guard.New(memory.New(), guard.WithLabel("web-1"))
	build := func(context.Context) error { return nil }
	_ = g.Do(context.Background(), "report:2026-11-21", build, guard.WithOnce(24*time.Hour), guard.WithName("report"))
	err := g.Do(context.Background(), "report:2026-11-21", build)
	if done := new(guard.DoneError); errors.As(err, &done) {
		fmt.Println(done.Label, "has done the", done.Name, "within the last minute:", time.Since(done.At) < time.Minute)
	}
	// Output: web-1 has done the report within the last minute: true
}

// A backup that two clocks start each night, and an operator once more by hand.
func ExampleWithOncePer() {
	g, _ := guard.New(memory.New())
	backup := func(context.Context) error {
		fmt.Println("backing up")
		return nil
	}
	for range 3 {
		err := g.Do(context.Background(), "backup", backup, guard.WithOncePer(24*time.Hour))
		fmt.Println(errors.Is(err, guard.ErrDone))
	}
	// Output:
	// backing up
	// false
	// true
	// true
}

// A run that hangs loses its lease, and its context ends.
func ExampleWithMaxHold() {
	g, _ := guard.New(memory.New())
	err := g.Do(context.Background(), "report", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}, guard.WithMaxHold(50*time.Millisecond))
	var lost *guard.LostError
	if errors.As(err, &lost) {
		fmt.Println(lost.Reason)
	}
	// Output: max_hold
}

// The run starts something that takes a while to end, such as a child process. It gets 200 ms for
// that before the lease ends, by which time another process may begin.
func ExampleWithMargin() {
	g, _ := guard.New(memory.New(), guard.WithTTL(time.Second))
	started := time.Now()
	err := g.Do(context.Background(), "import", func(ctx context.Context) error {
		<-ctx.Done() // "kill the child, and wait for it"
		fmt.Println("ended before the lease:", time.Since(started) < 900*time.Millisecond)
		return nil
	}, guard.WithMargin(200*time.Millisecond), guard.WithoutRenewal()) // as if the store were away
	fmt.Println(errors.Is(err, guard.ErrLost))
	// Output:
	// ended before the lease: true
	// true
}

// Several replicas start short work at nearly the same time. The minimum hold keeps the key busy
// for longer than their clocks differ.
func ExampleWithMinHold() {
	g, _ := guard.New(memory.New(), guard.WithMinHold(5*time.Second))
	for range 2 {
		err := g.Do(context.Background(), "tick", func(context.Context) error { return nil })
		fmt.Println(errors.Is(err, guard.ErrBusy))
	}
	// Output:
	// false
	// true
}

// Call Valid right before a side effect, and pass the fence to the resource.
func ExampleFromContext() {
	g, _ := guard.New(memory.New())
	var highest uint64 // the highest fence that the resource has seen
	write := func(fence uint64) bool {
		if fence < highest {
			return false
		}
		highest = fence
		return true
	}
	_ = g.Do(context.Background(), "stock", func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		if !lease.Valid() {
			return context.Cause(ctx)
		}
		fmt.Println(write(guard.Fence(ctx)))
		return nil
	})
	fmt.Println(write(highest - 1)) // an earlier holder, which was paused for too long
	// Output:
	// true
	// false
}

// A later caller receives the record of the run that has finished.
func ExampleLease_SetRecord() {
	g, _ := guard.New(memory.New(), guard.WithOnce(time.Hour))
	for range 2 {
		err := g.Do(context.Background(), "order:42", func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			return lease.SetRecord([]byte("invoice-7.pdf"))
		})
		var done *guard.DoneError
		if errors.As(err, &done) {
			fmt.Printf("%s\n", done.Record)
		}
	}
	// Output: invoice-7.pdf
}

// Hold a lease for as long as necessary, for example as the leader.
func ExampleGuard_Acquire() {
	g, _ := guard.New(memory.New())
	ctx := context.Background()
	lease, err := g.Acquire(ctx, "leader")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Valid())
	fmt.Println(lease.Release(ctx))
	fmt.Println(lease.Valid(), context.Cause(lease.Context()))
	// Output:
	// true
	// <nil>
	// false lease was released
}

// The database ends a statement that would go on after the lease.
func ExampleLease_ValidUntil() {
	g, _ := guard.New(memory.New(), guard.WithTTL(10*time.Second))
	_ = g.Do(context.Background(), "import", func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		timeout := time.Until(lease.ValidUntil())
		fmt.Println(timeout > 9*time.Second, timeout < 10*time.Second)
		return nil // SET LOCAL statement_timeout, and the statement
	})
	// Output: true true
}

// Waiters get the key in the order in which they came, across all processes.
func ExampleWithFair() {
	store := memory.New() // or single, or reentrant
	var replicas []*guard.Guard
	for range 2 {
		g, _ := guard.New(store, guard.WithFair(), guard.WithWait(guard.Forever))
		replicas = append(replicas, g)
	}
	ctx := context.Background()
	lease, _ := replicas[0].Acquire(ctx, "printer")
	var all sync.WaitGroup
	for i := range 4 {
		waits := make(chan struct{})
		hook := guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { close(waits) }})
		all.Go(func() {
			_ = replicas[i%2].Do(ctx, "printer", func(context.Context) error {
				fmt.Println("document", i+1)
				return nil
			}, hook)
		})
		<-waits // so that the calls come one after the other
	}
	_ = lease.Release(ctx)
	all.Wait()
	// Output:
	// document 1
	// document 2
	// document 3
	// document 4
}

// Two steps of one import hold the key together, perhaps in two processes. The owner needs a
// backend that keeps owners.
func ExampleWithOwner() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	g, err := guard.New(reentrant.New(rdb))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()

	step := func(context.Context) error { return nil }
	lease, err := g.Acquire(ctx, "tenant:17", guard.WithOwner("import 7"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("same owner:", g.Do(ctx, "tenant:17", step, guard.WithOwner("import 7")))
	fmt.Println("other owner busy:", errors.Is(g.Do(ctx, "tenant:17", step, guard.WithOwner("import 8")), guard.ErrBusy))
	fmt.Println("no owner busy:", errors.Is(g.Do(ctx, "tenant:17", step), guard.ErrBusy))
	_ = lease.Release(ctx)
	// Output:
	// same owner: <nil>
	// other owner busy: true
	// no owner busy: true
}

func ExampleGuard_Wrap() {
	g, _ := guard.New(memory.New())
	job, err := g.Wrap("nightly", func(context.Context) error {
		fmt.Println("tidying up")
		return nil
	}, guard.WithName("nightly"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = job(context.Background())
	// Output: tidying up
}

// A service refuses bad settings when it starts, and not when the first request comes.
func ExampleGuard_Check() {
	g, _ := guard.New(memory.New())
	fmt.Println(g.Check("report", guard.WithWait(-time.Second)))
	// Output: guard: WithWait(-1s): must not be negative
}

func ExampleDoValue() {
	g, _ := guard.New(memory.New())
	n, err := guard.DoValue(context.Background(), g, "count", func(context.Context) (int, error) { return 42, nil })
	fmt.Println(n, err)
	// Output: 42 <nil>
}

// A hook with one function logs the skipped runs.
func ExampleWithHook() {
	skipped := guard.Hook{Skip: func(_ context.Context, e guard.SkipEvent) {
		fmt.Println("skipped", e.Name, e.State)
	}}
	g, _ := guard.New(memory.New(), guard.WithName("report"), guard.WithHook(skipped), guard.WithOnce(time.Hour))
	for range 2 {
		_ = g.Do(context.Background(), "report:2026-11-21", func(context.Context) error { return nil })
	}
	// Output: skipped report done
}

// At shutdown, give running functions ten seconds to finish.
func ExampleGuard_Close() {
	g, _ := guard.New(memory.New())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(g.Close(ctx))
	fmt.Println(g.Do(ctx, "k", func(context.Context) error { return nil }))
	// Output:
	// <nil>
	// guard: "k": guard is closed
}

// A service that holds a key calls another one, which works under the same key meanwhile.
func ExampleCarryOwner() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	g, err := guard.New(reentrant.New(rdb)) // each service has one
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()

	called := func(header http.Header) error {
		return g.Do(context.Background(), "tenant:17", func(context.Context) error { return nil },
			guard.WithOwnerFrom(header.Get))
	}
	_ = g.Do(ctx, "tenant:17", func(ctx context.Context) error {
		header := http.Header{}
		fmt.Println("busy without:", errors.Is(called(header), guard.ErrBusy))
		guard.CarryOwner(ctx, header.Set)
		fmt.Println("with the owner:", called(header))
		return nil
	}, guard.WithOwner("import 7"))
	// Output:
	// busy without: true
	// with the owner: <nil>
}

// The work must end within the TTL, whatever happens.
func ExampleWithoutRenewal() {
	g, _ := guard.New(memory.New())
	err := g.Do(context.Background(), "import", func(ctx context.Context) error {
		<-ctx.Done() // it hangs
		return ctx.Err()
	}, guard.WithTTL(200*time.Millisecond), guard.WithoutRenewal())
	fmt.Println(errors.Is(err, guard.ErrLost))
	// Output: true
}

// One call of a fair Guard goes ahead of the queue, and one of a Guard without renewal is renewed.
func ExampleWithoutFair() {
	g, _ := guard.New(memory.New(), guard.WithFair(), guard.WithoutRenewal())
	fmt.Println(g.Do(context.Background(), "import", nothing, guard.WithoutFair(), guard.WithRenewal()))
	// Output: <nil>
}

// A program that has its store to itself says so: the adapters below middleware/ would refuse a
// Guard without a namespace.
func ExampleWithoutNamespace() {
	shared, _ := guard.New(memory.New(), guard.WithNamespace("billing"))
	alone, _ := guard.New(memory.New(), guard.WithoutNamespace())
	neither, _ := guard.New(memory.New())
	for _, g := range []*guard.Guard{shared, alone, neither} {
		fmt.Println(g.Adapter().Check(nil) == nil)
	}
	// Output:
	// true
	// true
	// false
}
