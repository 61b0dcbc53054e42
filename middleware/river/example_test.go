package guardriver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

// One job of a customer runs at a time. River calls Work for each job.
func Example() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"))
	if err != nil {
		panic(err)
	}
	defer g.Close(ctx)
	byCustomer, err := guardriver.New(g, guardriver.FromJSON("customer"))
	if err != nil {
		panic(err)
	}
	// config.Middleware = append(config.Middleware, byCustomer)

	first := &rivertype.JobRow{ID: 1, Kind: "charge", EncodedArgs: []byte(`{"customer":42}`)}
	second := &rivertype.JobRow{ID: 2, Kind: "charge", EncodedArgs: []byte(`{"customer":42}`)}
	err = byCustomer.Work(ctx, first, func(ctx context.Context) error {
		fmt.Println("charging customer", guardriver.Key(ctx))
		err := byCustomer.Work(context.Background(), second, func(context.Context) error { return nil })
		fmt.Println("the second job is snoozed:", isSnoozed(err))
		return nil
	})
	fmt.Println("the first job ended with:", err)
	// Output:
	// charging customer 42
	// the second job is snoozed: true
	// the first job ended with: <nil>
}

// Each order is charged once, also if River takes its job for stuck and runs it again.
func ExampleWithOnce() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"))
	if err != nil {
		panic(err)
	}
	defer g.Close(ctx)
	once, err := guardriver.New(g, nil, guardriver.WithOnce(24*time.Hour, guardriver.FromJSON("order")))
	if err != nil {
		panic(err)
	}
	for id := range int64(2) {
		job := &rivertype.JobRow{ID: id, Kind: "charge", EncodedArgs: []byte(`{"order":7}`)}
		err := once.Work(ctx, job, func(context.Context) error {
			fmt.Println("charging order 7")
			return nil
		})
		fmt.Println("job", id, "ended with:", err)
	}
	// Output:
	// charging order 7
	// job 0 ended with: <nil>
	// job 1 ended with: <nil>
}

func isSnoozed(err error) bool {
	var postponed *guardriver.PostponedError
	return errors.As(err, &postponed)
}
