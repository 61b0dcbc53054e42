package inspect_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A report hangs. An operator looks who runs it, and breaks its lease.
func Example() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"), guard.WithLabel("worker-7"), guard.WithTTL(3*time.Second))
	check(err)
	hung, err := g.Acquire(ctx, "report")
	check(err)

	i, err := inspect.New(g)
	check(err)
	key, err := i.Show(ctx, "report")
	check(err)
	fmt.Println(key.Name, "is", key.State(), "by", key.Holders[0].Label)

	broken, err := i.Break(ctx, "report", key.Holders[0].ID, inspect.By{Actor: "alice", Reason: "it hangs"})
	check(err)
	fmt.Println("broken:", broken)
	<-hung.Context().Done()
	fmt.Println(context.Cause(hung.Context()))
	_ = hung.Release(ctx) // which says the same
	check(g.Close(ctx))
	// Output:
	// report is held by worker-7
	// broken: true
	// guard: lease on "report" was lost: not_held
}

// Yesterday's job was done, and has to run once more.
func ExampleInspector_Forget() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"), guard.WithOnce(20*time.Hour))
	check(err)
	job := func(context.Context) error {
		fmt.Println("the job runs")
		return nil
	}
	check(g.Do(ctx, "nightly", job))
	i, err := inspect.New(g)
	check(err)
	forgotten, err := i.Forget(ctx, "nightly", inspect.By{Actor: "alice", Reason: "its input was wrong"})
	check(err)
	fmt.Println("forgotten:", forgotten)
	check(g.Do(ctx, "nightly", job))
	// Output:
	// the job runs
	// forgotten: true
	// the job runs
}

// Keys for which others wait come first, then those that have been held longest. Done markers are
// only counted.
func ExampleInspector_Survey() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = g.Close(ctx) }()
	i, err := inspect.New(g)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = g.Do(ctx, "import", func(context.Context) error { return nil }, guard.WithOnce(2*time.Hour))
	_ = g.Do(ctx, "report", func(context.Context) error {
		s, err := i.Survey(ctx, inspect.Query{Limit: 10})
		fmt.Println(s.Held, s.Done, s.Keys[0].Name, err)
		return nil
	})
	// Output: 1 1 report <nil>
}
