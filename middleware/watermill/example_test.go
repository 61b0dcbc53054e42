package guardwatermill_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardwatermill "github.com/seed-1795987d/onerun/middleware/watermill"
)

// The broker delivers an event twice. It is handled once, and what the handler produced is
// published again: the first delivery may have ended before it was.
func ExampleNew() {
	// with several processes, single.New(redisClient)
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	once, err := guardwatermill.New(g, guardwatermill.FromMetadata("event_id"), guardwatermill.WithOnce(24*time.Hour))
	if err != nil {
		panic(err)
	}
	// router.AddMiddleware(middleware.Recoverer, once)
	handler := once(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("charge", string(msg.Payload))
		return []*message.Message{message.NewMessage("receipt-42", nil)}, nil
	})
	for range 2 {
		msg := message.NewMessage("1", message.Payload("order 42"))
		msg.Metadata.Set("event_id", "order-42")
		produced, err := handler(msg)
		fmt.Println(produced[0].UUID, err)
	}
	// Output:
	// charge order 42
	// receipt-42 <nil>
	// receipt-42 <nil>
}
