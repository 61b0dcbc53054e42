package guardwatermill_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	guardwatermill "github.com/seed-1795987d/onerun/middleware/watermill"
)

// A stand is a middleware, and what hooks have received.
type stand struct {
	guard *guard.Guard
	once  message.HandlerMiddleware

	mu       sync.Mutex
	outcomes []guard.Outcome
}

func newStand(t *testing.T, key guardwatermill.KeyFunc, opts ...guardwatermill.Option) *stand {
	t.Helper()
	return newStandOn(t, memory.New(), key, opts...)
}

func newStandOn(t *testing.T, store guard.Locker, key guardwatermill.KeyFunc, opts ...guardwatermill.Option) *stand {
	t.Helper()
	s := &stand{}
	var err error
	s.guard, err = guard.New(store, guard.WithNamespace("shop"), guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outcomes = append(s.outcomes, o)
	}}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.guard.Close(context.Background()) })
	s.once, err = guardwatermill.New(s.guard, key, opts...)
	require.NoError(t, err)
	return s
}

// An outage is a store that renews no leases once the outage begins.
type outage struct {
	guard.Locker
	begins atomic.Bool
}

func (o *outage) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	if o.begins.Load() {
		return false, errFailed
	}
	return o.Locker.Renew(ctx, c)
}

// results returns the results that hooks have received.
func (s *stand) results() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var results []string
	for _, o := range s.outcomes {
		results = append(results, o.Result)
	}
	return results
}

func (s *stand) last() guard.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcomes[len(s.outcomes)-1]
}

// order returns a delivery of the event of an ID.
func order(id string) *message.Message {
	m := message.NewMessage(watermill.NewUUID(), message.Payload(`{"order":42}`))
	m.Metadata.Set("event_id", id)
	return m
}

// produce is a handler that produces two messages.
func produce(*message.Message) ([]*message.Message, error) {
	first := message.NewMessage("uuid-1", message.Payload("paid"))
	first.Metadata.Set("currency", "EUR")
	first.Metadata.Set("amount", "5")
	return message.Messages{first, message.NewMessage("uuid-2", nil)}, nil
}

func never(*message.Message) ([]*message.Message, error) { panic("the handler ran") }

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }

// flaky publishes after it has failed some times.
type flaky struct {
	message.Publisher
	mu   sync.Mutex
	fail int
}

func (f *flaky) Publish(topic string, msgs ...*message.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail--; f.fail >= 0 {
		return errFailed
	}
	return f.Publisher.Publish(topic, msgs...)
}

// A line is a router between the topics orders and payments. Publish to orders returns when the
// message has been acknowledged.
type line struct {
	ps     *gochannel.GoChannel
	pub    *flaky
	router *message.Router
	out    chan *message.Message
}

func newLine(t *testing.T, middlewares ...message.HandlerMiddleware) *line {
	t.Helper()
	l := &line{ps: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})}
	l.pub = &flaky{Publisher: l.ps}
	payments, err := l.ps.Subscribe(context.Background(), "payments")
	require.NoError(t, err)
	l.out = make(chan *message.Message, 10)
	go func() {
		for m := range payments {
			l.out <- m
			m.Ack()
		}
	}()
	l.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NopLogger{})
	require.NoError(t, err)
	l.router.AddMiddleware(middlewares...)
	return l
}

// handle adds a handler, and run starts the router.
func (l *line) handle(name string, h message.HandlerFunc) {
	l.router.AddHandler(name, "orders", l.ps, "payments", l.pub, h)
}

func (l *line) run(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- l.router.Run(context.Background()) }()
	<-l.router.Running()
	t.Cleanup(func() {
		require.NoError(t, l.router.Close())
		require.NoError(t, <-ended)
		require.NoError(t, l.ps.Close())
	})
}

// next returns the next message of the topic payments.
func (l *line) next(t *testing.T) *message.Message {
	t.Helper()
	select {
	case m := <-l.out:
		return m
	case <-time.After(10 * time.Second):
		require.FailNow(t, "no message was published")
		return nil
	}
}
