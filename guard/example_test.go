package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// Once a day, by whichever replica comes first.
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
			fmt.Println("somebody else is at it")
		case errors.Is(err, guard.ErrDone):
			fmt.Println("it ran already")
		case err != nil:
			fmt.Println(err)
		}
	}
	// Output:
	// building the report
	// it ran already
	// it ran already
}

// Never two at a time: whoever finds the key busy learns who has it and for how long at most.
func ExampleGuard_Do() {
	g, _ := guard.New(memory.New(), guard.WithLabel("web-1"), guard.WithTTL(10*time.Second))
	ctx := context.Background()

	_ = g.Do(ctx, "account:17", func(context.Context) error {
		err := g.Do(ctx, "account:17", func(context.Context) error { return nil })
		var busy *guard.BusyError
		if errors.As(err, &busy) {
			fmt.Printf("%s has it for up to %v\n", busy.Label, busy.Left.Round(time.Second))
		}
		return nil
	})
	// Output: web-1 has it for up to 10s
}

// Wait for one's turn, for up to a minute.
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

// Short work that several replicas start at nearly the same time: the key stays busy for longer than their
// clocks differ.
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

// Ask Valid right before a side effect, and hand the fence to what is written to.
func ExampleFromContext() {
	g, _ := guard.New(memory.New())
	var highest uint64 // what the resource remembers
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
	fmt.Println(write(highest - 1)) // a holder that was paused for too long
	// Output:
	// true
	// false
}

// A later caller finds what the run that did the work has left.
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

// A lease that is held for as long as one likes: a leader, for instance.
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

// Whoever comes first is served first, in whatever process.
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
		hook := guard.WithHook(guard.Hook{Wait: func(context.Context, guard.Event) { close(waits) }})
		all.Go(func() {
			_ = replicas[i%2].Do(ctx, "printer", func(context.Context) error {
				fmt.Println("document", i+1)
				return nil
			}, hook)
		})
		<-waits // so that they come one after the other
	}
	_ = lease.Release(ctx)
	all.Wait()
	// Output:
	// document 1
	// document 2
	// document 3
	// document 4
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

func ExampleDoValue() {
	g, _ := guard.New(memory.New())
	n, err := guard.DoValue(context.Background(), g, "count", func(context.Context) (int, error) { return 42, nil })
	fmt.Println(n, err)
	// Output: 42 <nil>
}

// A hook of one function, for a log.
func ExampleWithHook() {
	skipped := guard.Hook{Skip: func(_ context.Context, e guard.Event) {
		fmt.Println("skipped", e.Name, e.State)
	}}
	g, _ := guard.New(memory.New(), guard.WithName("report"), guard.WithHook(skipped), guard.WithOnce(time.Hour))
	for range 2 {
		_ = g.Do(context.Background(), "k", func(context.Context) error { return nil })
	}
	// Output: skipped report done
}

// Give the runs that are under way ten seconds to end when the program does.
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
