package guardjetstream_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardjetstream "github.com/seed-1795987d/onerun/middleware/jetstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A message is a jetstream.Msg that notes the answers to the server.
type message struct {
	jetstream.Msg // nil: what is not below is not called
	id, subject   string
	header        nats.Header
	consumer      string // or "" for billing
	data          string
	sequence      uint64
	stored        time.Time
	delivered     uint64
	ackErr        []error // of the acknowledgements, one after the other

	mu      sync.Mutex
	answers []string
	alive   int // how many InProgress there were
}

func (m *message) answer(format string, args ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers = append(m.answers, fmt.Sprintf(format, args...))
	return nil
}

func (m *message) DoubleAck(context.Context) error {
	if len(m.ackErr) > 0 {
		err := m.ackErr[0]
		m.ackErr = m.ackErr[1:]
		return err
	}
	return m.answer("ack")
}
func (m *message) NakWithDelay(d time.Duration) error {
	return m.answer("nak %v", d.Truncate(time.Second))
}
func (m *message) TermWithReason(reason string) error { return m.answer("term %s", reason) }
func (m *message) InProgress() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alive++
	return nil
}

func (m *message) inProgress() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive
}
func (m *message) Subject() string { return m.subject }
func (m *message) Data() []byte    { return []byte(m.data) }
func (m *message) Headers() nats.Header {
	if m.id != "" {
		return nats.Header{jetstream.MsgIDHeader: {m.id}}
	}
	return m.header
}
func (m *message) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{
		Stream: "ORDERS", Consumer: cmp.Or(m.consumer, "billing"), Timestamp: m.stored, NumDelivered: max(1, m.delivered),
		Sequence: jetstream.SequencePair{Stream: m.sequence},
	}, nil
}

// A consumer has a configuration.
type consumer jetstream.ConsumerConfig

func (c consumer) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig(c)}
}

var explicit = consumer{AckPolicy: jetstream.AckExplicitPolicy, AckWait: 3 * time.Second}

// A stand is a middleware, and what hooks have received.
type stand struct {
	guard    *guard.Guard
	m        guardjetstream.Middleware
	mu       sync.Mutex
	outcomes []guard.Outcome
}

func newStand(t *testing.T, c consumer, opts ...guardjetstream.Option) *stand {
	t.Helper()
	return newStandOf(t, nil, c, opts...)
}

func newStandOf(t *testing.T, key guardjetstream.KeyFunc, c consumer, opts ...guardjetstream.Option) *stand {
	t.Helper()
	s := &stand{}
	var err error
	s.guard, err = guard.New(memory.New(), guard.WithNamespace("shop"), guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outcomes = append(s.outcomes, o)
	}}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.guard.Close(context.Background()) })
	s.m, err = guardjetstream.New(s.guard, key, append([]guardjetstream.Option{guardjetstream.WithConsumer(c)}, opts...)...)
	require.NoError(t, err)
	return s
}

func (s *stand) last() guard.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcomes[len(s.outcomes)-1]
}
