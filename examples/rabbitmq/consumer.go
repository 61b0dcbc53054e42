// Package rabbitmq handles the messages of a RabbitMQ queue once for each message, and one of a
// message at a time, with amqp091-go and no adapter. Copy consumer.go into your service.
//
// RabbitMQ delivers a message again if its consumer dies, or loses its connection, before the
// acknowledgement. The first handler may still run then. Here the order is: handle the message,
// leave the done marker, acknowledge. So a message is never lost, and one that comes again finds
// the marker or the lease.
package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-1795987d/onerun/guard"
)

// Declare declares a queue, and one for the messages that have failed as often as attempts. A
// quorum queue counts deliveries. A classic queue does not, and would deliver such a message
// forever.
func Declare(ch *amqp.Channel, queue string, attempts int) error {
	dead := queue + ".dead"
	if _, err := ch.QueueDeclare(dead, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return err
	}
	_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": attempts - 1,
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
	})
	return err
}

// A Consumer handles the messages of a queue.
type Consumer struct {
	Guard  *guard.Guard
	Queue  string
	Handle func(ctx context.Context, d *amqp.Delivery) error
	AtOnce int           // how many messages it handles at a time
	Wait   time.Duration // for the consumer that had the message before
	Delay  time.Duration // before a message is tried again
}

// Run handles messages until ctx ends or the channel closes. It returns after the last handler. If
// the connection was lost, open another one and call Run again.
func (c *Consumer) Run(ctx context.Context, ch *amqp.Channel) error {
	if err := ch.Qos(c.AtOnce, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, c.Queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	for d := range deliveries {
		running.Go(func() {
			// An error means that the channel has closed. The message then comes again, and finds
			// the marker.
			_ = c.answer(ctx, &d)
		})
	}
	return ctx.Err()
}

// answer handles a message, and acknowledges it or gives it back. The key is what the producer has
// named the message. Nothing else of a delivery is the same each time, so a message without that
// goes to the dead ones at once.
//
// RabbitMQ ends the channel of a message without an answer after 30 minutes (consumer_timeout), and
// delivers it again. The key is then busy until the handler returns.
func (c *Consumer) answer(ctx context.Context, d *amqp.Delivery) error {
	if d.MessageId == "" {
		return d.Nack(false, false)
	}
	for {
		err := c.Guard.Do(ctx, c.Queue+":"+d.MessageId, func(ctx context.Context) error { return c.Handle(ctx, d) },
			guard.WithOnce(24*time.Hour), guard.WithWait(c.Wait))
		switch {
		case err == nil, errors.Is(err, guard.ErrDone), errors.Is(err, guard.ErrMarker):
			return d.Ack(false)
		case ctx.Err() != nil, errors.Is(err, guard.ErrClosed):
			return d.Nack(false, true)
		}
		// RabbitMQ delivers again at once, so the delay is here.
		select {
		case <-time.After(c.Delay):
		case <-ctx.Done():
		}
		if guard.Ran(err) {
			return d.Nack(false, true) // the queue counts it
		}
		// The key is busy or the store is unavailable: that is no attempt.
	}
}
