package guardgocron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
)

// Lock is gocron.Lock, from github.com/go-co-op/gocron/v2.
type Lock interface {
	Unlock(ctx context.Context) error
}

// The locker of a gocron scheduler. The minimum hold outlasts the difference of clocks.
func ExampleNewLocker() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	locker, _ := guardgocron.NewLocker[Lock](g, guard.WithMinHold(5*time.Second))
	lock, err := locker.Lock(ctx, "nightly-report")
	fmt.Println(err)
	_ = lock.Unlock(ctx)
	_, err = locker.Lock(ctx, "nightly-report") // of a machine whose clock is late
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// true
}

// Of all processes with an elector of the same name, the scheduler of one runs the jobs.
func ExampleNewElector() {
	ctx := context.Background()
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	defer g.Close(ctx)
	first, _ := guardgocron.NewElector(g, "reports")
	second, _ := guardgocron.NewElector(g, "reports")
	fmt.Println(first.IsLeader(ctx) == nil, second.IsLeader(ctx) == nil)
	_ = first.Close(ctx)
	for second.IsLeader(ctx) != nil { // it leads soon, without being asked
		time.Sleep(time.Millisecond)
	}
	fmt.Println(first.IsLeader(ctx) == nil)
	_ = second.Close(ctx)
	// Output:
	// true false
	// false
}
