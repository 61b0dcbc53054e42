package guard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A caller may try again if the function did not run. If it did, only the function's own error can
// say whether that is safe.
func ExampleRan() {
	g, _ := guard.New(memory.New(), guard.WithOnce(time.Hour))
	ctx := context.Background()
	fail := func(context.Context) error { return errors.New("out of paper") }
	work := func(context.Context) error { return nil }

	for _, f := range []func(context.Context) error{fail, work, work} {
		err := g.Do(ctx, "report:2026-11-21", f)
		fmt.Printf("%v, ran: %v\n", err, guard.Ran(err))
	}
	fmt.Println(g.Close(ctx))
	err := g.Do(ctx, "report:2026-11-21", work)
	fmt.Printf("%v, ran: %v\n", err, guard.Ran(err))
	// Output:
	// out of paper, ran: true
	// <nil>, ran: true
	// guard: "report:2026-11-21" is done, ran: false
	// <nil>
	// guard: "report:2026-11-21": guard is closed, ran: false
}

// The function ran, but the store did not confirm the done marker: the work may run again.
func ExampleMarkerError() {
	store := &guardtest.Scripted{
		OnRelease: func(context.Context, int, driver.Claim, driver.After) (bool, error) {
			return false, guardtest.Fail(driver.KindAuth)
		},
	}
	g, _ := guard.New(store, guard.WithOnce(time.Hour))
	err := g.Do(context.Background(), "report:2026-11-21", func(context.Context) error { return nil })
	fmt.Println("marker:", errors.Is(err, guard.ErrMarker))
	fmt.Println("refused:", errors.Is(err, guard.ErrStore))
	fmt.Println("ran:", guard.Ran(err))
	// Output:
	// marker: true
	// refused: false
	// ran: true
}

// A call switches off what New has set by the zero value of the same option.
func ExampleOption() {
	g, _ := guard.New(memory.New(), guard.WithOnce(time.Hour))
	for range 2 {
		fmt.Println(g.Do(context.Background(), "report", nothing, guard.WithOnce(0)))
	}
	// Output:
	// <nil>
	// <nil>
}

// Close revokes a lease whose function does not return in time, and says so.
func ExampleGuard_Close_revokes() {
	g, _ := guard.New(memory.New())
	running, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- g.Do(context.Background(), "report", func(ctx context.Context) error {
			close(running)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-running
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(g.Close(ctx))
	fmt.Println(<-ended)
	// Output:
	// guard: close: 1 lease was revoked from a function that was running: context deadline exceeded
	// guard: "report": guard was closed, and revoked the lease
}
