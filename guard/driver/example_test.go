package driver_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// frozen is a backend that refuses keys of reports.
type frozen struct{ driver.Wrapper }

func (l frozen) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if strings.HasPrefix(c.Key, "report:") {
		return driver.Answer{State: driver.Busy, Left: -1}, nil
	}
	return l.Wrapper.TryAcquire(ctx, c)
}

func ExampleWrapper() {
	g, err := guard.New(frozen{driver.Wrapper{Locker: memory.New()}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = g.Close(context.Background()) }()
	work := func(context.Context) error { return nil }
	fmt.Println(g.Do(context.Background(), "mail:7", work))
	fmt.Println(g.Do(context.Background(), "report:7", work))
	// Output:
	// <nil>
	// guard: "report:7" is busy
}
