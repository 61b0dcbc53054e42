package guardjetstream_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardjetstream "github.com/seed-1795987d/onerun/middleware/jetstream"
)

// The server delivers a message twice, because the acknowledgement of the first delivery was lost.
// The handler runs once.
func ExampleNew() {
	// with several processes, single.New(redisClient)
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	// in a program: consumer, err := js.Consumer(ctx, "ORDERS", "billing")
	var consumer guardjetstream.Consumer = explicit
	once, err := guardjetstream.New(g, nil, guardjetstream.WithConsumer(consumer), guardjetstream.WithOnce(24*time.Hour))
	if err != nil {
		panic(err)
	}
	charge := once(func(_ context.Context, msg jetstream.Msg) error {
		fmt.Println("charge", string(msg.Data()))
		return nil
	})
	// consuming, err := consumer.Consume(charge)
	delivery := &message{id: "order-42", data: "order 42"}
	charge(delivery)
	charge(delivery)
	fmt.Println(delivery.answers)
	// Output:
	// charge order 42
	// [ack ack]
}
