// Package kafka handles the records of a Kafka topic once for each event, and one of an event at a
// time, with franz-go and no adapter. Copy consumer.go into your service.
//
// Kafka delivers a record again if its consumer dies, or loses its partition, before the offset is
// committed. A producer may also have sent an event twice, at two offsets. Here the order is:
// handle the record, leave the done marker, commit the offset. So an event is never lost, and one
// that comes again finds the marker or the lease.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-1795987d/onerun/guard"
)

// A Consumer handles the records of its Client, which needs kgo.DisableAutoCommit.
type Consumer struct {
	Client   *kgo.Client
	Guard    *guard.Guard
	Handle   func(ctx context.Context, r *kgo.Record) error
	Poisoned string        // the topic of records that have failed Attempts times
	Attempts int           // to handle a record, in this process
	Wait     time.Duration // for the consumer that had the partition before
	Delay    time.Duration // between two attempts
}

// Run handles records until ctx ends or the client is closed. It returns after the handler.
func (c *Consumer) Run(ctx context.Context) error {
	for {
		fetches := c.Client.PollRecords(ctx, 100)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return ctx.Err()
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			r := iter.Next()
			if err := c.once(ctx, r); err != nil {
				return err // the offset is not committed, so the record comes again
			}
			// An error means that another consumer has the partition now, or that the broker is
			// away. The record then comes again, and finds the marker.
			_ = c.Client.CommitRecords(ctx, r)
		}
	}
}

// once returns nil when the offset of the record can be committed. Kafka does not deliver a record
// again by itself, and later ones of its partition wait, so a record that cannot be handled now is
// tried again here.
func (c *Consumer) once(ctx context.Context, r *kgo.Record) error {
	for attempt := 1; ; {
		err := c.Guard.Do(ctx, r.Topic+":"+key(r), func(ctx context.Context) error { return c.Handle(ctx, r) },
			guard.WithOnce(24*time.Hour), guard.WithWait(c.Wait))
		switch {
		case err == nil, errors.Is(err, guard.ErrDone), errors.Is(err, guard.ErrMarker):
			return nil
		case ctx.Err() != nil, errors.Is(err, guard.ErrClosed):
			return err
		case !guard.Ran(err): // the key is busy, or the store is unavailable: no attempt
		case attempt >= c.Attempts:
			return c.poison(ctx, r, err)
		default:
			attempt++
		}
		select {
		case <-time.After(c.Delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// poison sends a record that has failed to another topic. It has left no marker, so it can be sent
// back to its own topic from there.
func (c *Consumer) poison(ctx context.Context, r *kgo.Record, cause error) error {
	dead := &kgo.Record{
		Topic: c.Poisoned, Key: r.Key, Value: r.Value,
		Headers: append(r.Headers, kgo.RecordHeader{Key: "error", Value: []byte(cause.Error())}),
	}
	return c.Client.ProduceSync(ctx, dead).FirstErr()
}

// key returns what the producer has named the event, which finds an event that was sent twice. For
// a record without that, it is the place of the record in its topic. Its timestamp is there because
// a topic that is deleted and made again counts from 0.
func key(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "event-id" && len(h.Value) > 0 {
			return "event:" + string(h.Value)
		}
	}
	return fmt.Sprintf("record:%d:%d:%d", r.Partition, r.Offset, r.Timestamp.UnixMilli())
}
