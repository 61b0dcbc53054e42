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

// Requests read the configuration together. A reload has it alone, so no request in any process
// sees half of it.
func ExampleWithShared() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithWait(time.Minute)) // or single.New(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	config := map[string]string{"price": "10", "currency": "EUR"} // two rows of a database
	serve := func(ctx context.Context) error {
		price := config["price"]
		time.Sleep(time.Millisecond)
		if currency := config["currency"]; (price == "10") != (currency == "EUR") {
			return fmt.Errorf("half reloaded: %s %s", price, currency)
		}
		return ctx.Err()
	}
	reload := func(ctx context.Context) error {
		config["price"] = "11"
		time.Sleep(time.Millisecond)
		config["currency"] = "USD"
		return ctx.Err()
	}

	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if err := g.Do(ctx, "config", serve, guard.WithShared()); err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Go(func() {
		if err := g.Do(ctx, "config", reload); err != nil {
			fmt.Println(err)
		}
	})
	all.Wait()
	fmt.Println(config["price"], config["currency"], g.Close(ctx))
	// Output: 11 USD <nil>
}

// At most five calls to a partner's API at a time, from all processes together, each with one of
// the five keys that the partner has given out.
func ExampleWithLimit() {
	ctx := context.Background()
	apiKeys := [5]string{"key-a", "key-b", "key-c", "key-d", "key-e"}
	g, err := guard.New(memory.New(), guard.WithLimit(len(apiKeys)), guard.WithWait(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	var mu sync.Mutex
	inUse, most := map[string]bool{}, 0
	call := func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		apiKey := apiKeys[lease.Seat()-1]
		mu.Lock()
		if inUse[apiKey] {
			fmt.Println(apiKey, "is used twice")
		}
		inUse[apiKey] = true
		most = max(most, len(inUse))
		mu.Unlock()

		time.Sleep(10 * time.Millisecond) // the call

		mu.Lock()
		defer mu.Unlock()
		delete(inUse, apiKey)
		return nil
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := g.Do(ctx, "partner", call); err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	fmt.Println("at a time:", most, g.Close(ctx))
	// Output: at a time: 5 <nil>
}

// Transfers between accounts, in both directions at once.
func ExampleGuard_DoAll() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithWait(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	balance := map[string]*int{"account:a": new(int), "account:b": new(int)}
	transfer := func(from, to string, amount int) error {
		return g.DoAll(ctx, []string{from, to}, func(context.Context) error {
			before := *balance[from]
			time.Sleep(time.Millisecond)
			*balance[from] = before - amount
			*balance[to] += amount
			return nil
		})
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := errors.Join(transfer("account:a", "account:b", 5), transfer("account:b", "account:a", 3)); err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	fmt.Println(*balance["account:a"], *balance["account:b"], g.Close(ctx))
	// Output: -20 20 <nil>
}

// A call that asks for the key alone, inside of a shared lease on it, would wait for itself.
func ExampleUpgradeError() {
	ctx := context.Background()
	g, err := guard.New(memory.New(), guard.WithWait(guard.Forever))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = g.Do(ctx, "config", func(ctx context.Context) error {
		return g.Do(ctx, "config", func(context.Context) error { return nil })
	}, guard.WithShared())
	fmt.Println(errors.Is(err, guard.ErrUpgrade), g.Close(ctx))
	// Output: true <nil>
}
