package jetstream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The server itself adds to the delay of a Nak, if the consumer has a BackOff.
func TestServer_deliversAfterTheStepsOfTheBackOff(t *testing.T) {
	t.Parallel()
	const timer = 10 * time.Millisecond // the server's
	steps := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	st := newStand(t, 5*time.Second)
	var err error
	st.c, err = st.js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{
		Durable: "steps", AckPolicy: jetstream.AckExplicitPolicy, BackOff: steps, MaxDeliver: 10,
	})
	require.NoError(t, err)
	deliveries := make(chan time.Time, 10)
	st.consume(func(context.Context, jetstream.Msg) error {
		deliveries <- time.Now()
		if len(deliveries) <= len(steps) {
			return errors.New("failed")
		}
		return nil
	})
	st.pub()
	st.idle()
	last := <-deliveries
	for _, step := range steps {
		next := <-deliveries
		require.GreaterOrEqual(t, next.Sub(last), step-timer)
		require.Less(t, next.Sub(last), step+400*time.Millisecond+stalls.Since(last))
		last = next
	}
}
