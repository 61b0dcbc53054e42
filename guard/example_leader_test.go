package guard_test

import (
	"context"
	"fmt"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// One process of all runs the function, for as long as it leads.
func ExampleGuard_Lead() {
	g, _ := guard.New(memory.New())
	defer g.Close(context.Background())
	err := g.Lead(context.Background(), "consumer", func(ctx context.Context) error {
		fmt.Println("leads under a fence:", guard.Fence(ctx) > 0)
		// Consume until ctx ends: the lease was lost, or the process stops.
		return guard.ErrStopLeading // another process can lead
	})
	fmt.Println(err)
	// Output:
	// leads under a fence: true
	// <nil>
}

// A Candidate tells who leads, so that a process can forward requests to the leader.
func ExampleCandidate() {
	g, _ := guard.New(memory.New())
	defer g.Close(context.Background())
	began := make(chan struct{}, 1)
	c, _ := g.Candidate("scheduler", func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done() // lead
		return nil
	}, guard.WithLabel("10.1.2.3:8080"))

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	<-began
	_, leading := c.Leading()
	leader, _ := c.Leader(ctx)
	fmt.Println(leading, leader.Label, c.Check())

	stop() // the lease is released: another process can lead at once
	fmt.Println(<-ended)
	// Output:
	// true 10.1.2.3:8080 <nil>
	// guard: lead "scheduler": context canceled
}

// Observe returns who leads, and each change.
func ExampleCandidate_Observe() {
	g, _ := guard.New(memory.New())
	defer g.Close(context.Background())
	c, _ := g.Candidate("scheduler", func(context.Context) error { return guard.ErrStopLeading }, guard.WithLabel("10.1.2.3:8080"))
	for leader, err := range c.Observe(context.Background()) {
		if err != nil {
			continue // the store cannot be asked; Observe goes on
		}
		fmt.Println(leader == guard.Leader{}) // nobody leads
		break
	}
	// Output:
	// true
}
