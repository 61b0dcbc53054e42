// Asynq is a worker that charges customers, one charge of a customer at a time, on however many
// workers there are.
//
//	go run ./examples/redis                          a Redis, if you have none
//	go run ./examples/asynq -work                    in a second terminal, and in a third
//	go run ./examples/asynq -charge alice,alice,bob  in a fourth
//
// A charge takes two seconds. Those of alice run one after the other, and that of bob beside them.
// Stop the worker that charges alice with Ctrl-C: asynq gives its task to the other one. Without
// the middleware, two charges of alice run at the same time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "where the tasks and the leases are")
	works := flag.Bool("work", false, "be a worker")
	customers := flag.String("charge", "", "the customers to charge")
	flag.Parse()
	var err error
	if *works {
		err = work(*addr)
	} else {
		err = enqueue(*addr, strings.Split(*customers, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "asynq:", err)
		os.Exit(1)
	}
}

// work works until the process is to stop.
func work(addr string) (err error) {
	of := asynq.RedisClientOpt{Addr: addr}
	client, inspector := asynq.NewClient(of), asynq.NewInspector(of)
	defer client.Close()
	defer inspector.Close()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"), guard.WithTTL(5*time.Second))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(context.Background())) }()

	byCustomer, err := guardasynq.New(g, guardasynq.FromJSON("customer"), guardasynq.WithClient(client, inspector))
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Handle("charge", byCustomer(asynq.HandlerFunc(charge)))

	config := asynq.Config{Concurrency: 4, ShutdownTimeout: time.Second, LogLevel: asynq.ErrorLevel}
	fmt.Println("working")
	return asynq.NewServer(of, guardasynq.Configure(config)).Run(mux) // until Ctrl-C
}

// An order is the payload of a task.
type order struct {
	Customer string `json:"customer"`
	Number   int    `json:"number"`
}

// charge is as it would be without Onerun.
func charge(ctx context.Context, task *asynq.Task) error {
	var o order
	if err := json.Unmarshal(task.Payload(), &o); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	fmt.Printf("begin %s %d\n", o.Customer, o.Number)
	select {
	case <-time.After(2 * time.Second):
		fmt.Printf("end %s %d\n", o.Customer, o.Number)
		return nil
	case <-ctx.Done(): // the lease was lost, or the worker stops: do nothing more
		return ctx.Err()
	}
}

// enqueue enqueues one charge for each customer.
func enqueue(addr string, customers []string) error {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
	defer client.Close()
	for i, customer := range customers {
		payload, err := json.Marshal(order{Customer: customer, Number: i + 1})
		if err != nil {
			return err
		}
		if _, err := client.Enqueue(asynq.NewTask("charge", payload)); err != nil {
			return err
		}
	}
	return nil
}
