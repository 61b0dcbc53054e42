package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/rabbittest"
)

// A site is a queue of a server, and a store of leases.
type site struct {
	t      *testing.T
	server *rabbittest.Server
	queue  string
	guard  *guard.Guard
	handle func(ctx context.Context, message string) error // nil succeeds

	mu   sync.Mutex
	runs map[string]int // of handlers that have succeeded
}

func newSite(t *testing.T, server *rabbittest.Server, queue string) *site {
	t.Helper()
	g, err := guard.New(memory.New(), guard.WithNamespace("billing"), guard.WithTTL(2*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	s := &site{t: t, server: server, queue: queue, guard: g, runs: map[string]int{}}
	_, ch := s.dial()
	require.NoError(t, Declare(ch, queue, 3))
	return s
}

func (s *site) dial() (*amqp.Connection, *amqp.Channel) {
	s.t.Helper()
	var connection *amqp.Connection
	require.Eventually(s.t, func() (ok bool) {
		var err error
		connection, err = amqp.Dial(s.server.URL())
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
	s.t.Cleanup(func() { _ = connection.Close() })
	ch, err := connection.Channel()
	require.NoError(s.t, err)
	return connection, ch
}

// start starts a consumer with a connection of its own, which it returns.
func (s *site) start() *amqp.Connection {
	s.t.Helper()
	connection, ch := s.dial()
	c := &Consumer{Guard: s.guard, Queue: s.queue, AtOnce: 1, Wait: 50 * time.Millisecond, Delay: 10 * time.Millisecond, Handle: s.count}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(ctx, ch) }()
	s.t.Cleanup(func() { cancel(); <-ended })
	return connection
}

func (s *site) count(ctx context.Context, d *amqp.Delivery) error {
	message := string(d.Body)
	if s.handle != nil {
		if err := s.handle(ctx, message); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[message]++
	return nil
}

func (s *site) send(messages ...string) {
	s.t.Helper()
	connection, ch := s.dial()
	defer connection.Close()
	require.NoError(s.t, ch.Confirm(false))
	for _, m := range messages {
		confirmed, err := ch.PublishWithDeferredConfirm("", s.queue, true, false, amqp.Publishing{MessageId: m, Body: []byte(m), DeliveryMode: amqp.Persistent})
		require.NoError(s.t, err)
		require.True(s.t, confirmed.Wait())
	}
}

func (s *site) awaitRuns(want map[string]int) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(c, want, s.runs)
	}, 20*time.Second, 20*time.Millisecond)
}

// awaitAnswers waits until all messages before are acknowledged: the queue gives a consumer one
// message at a time.
func (s *site) awaitAnswers(want map[string]int) {
	s.t.Helper()
	s.send("last")
	want["last"] = 1
	s.awaitRuns(want)
}

func TestConsumer(t *testing.T) {
	server := rabbittest.Start(t)
	for name, test := range map[string]func(t *testing.T, s *site){
		"twice": aMessageThatWasSentTwice, "lost": aConnectionThatIsLostDuringARun, "poison": aPoisonedMessage, "unnamed": aMessageWithoutAnID, "unanswered": aMessageWithoutAnAnswer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSite(t, server, name))
		})
	}
}

func aMessageThatWasSentTwice(t *testing.T, s *site) {
	s.send("a", "b", "a")
	s.start()
	s.awaitAnswers(map[string]int{"a": 1, "b": 1})
}

// Without an ID, one message would be taken for a repeat of another.
func aMessageWithoutAnID(t *testing.T, s *site) {
	s.send("", "a", "")
	s.start()
	s.awaitAnswers(map[string]int{"a": 1})
	_, ch := s.dial()
	for range 2 {
		require.Eventually(t, func() bool {
			_, ok, err := ch.Get(s.queue+".dead", true)
			return err == nil && ok
		}, 20*time.Second, 20*time.Millisecond)
	}
}

// The message goes to another consumer while the first one still handles it.
func aConnectionThatIsLostDuringARun(t *testing.T, s *site) {
	begun, end := make(chan string, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	s.handle = func(_ context.Context, m string) error { begun <- m; <-end; return nil }
	s.send("a")
	first := s.start()
	<-begun
	s.start()
	require.NoError(t, first.Close())
	select {
	case <-begun:
		t.Fatal("two runs at a time")
	case <-time.After(300 * time.Millisecond): // the second consumer waits for the key
	}
	release()
	s.awaitAnswers(map[string]int{"a": 1})
}

// A consumer that dies after the run and before the acknowledgement has left the marker.
func aMessageWithoutAnAnswer(t *testing.T, s *site) {
	connection := make(chan *amqp.Connection, 1)
	var again atomic.Bool
	s.handle = func(_ context.Context, m string) error {
		if m == "a" && !again.Swap(true) {
			_ = (<-connection).Close()
		}
		return nil
	}
	s.send("a")
	connection <- s.start()
	s.awaitRuns(map[string]int{"a": 1})
	s.start()
	s.awaitAnswers(map[string]int{"a": 1})
}

// A message that fails for good leaves no marker, and can be sent again.
func aPoisonedMessage(t *testing.T, s *site) {
	var attempts atomic.Int64
	s.handle = func(_ context.Context, m string) error {
		if m == "bad" && attempts.Add(1) <= 3 {
			return errors.New("no such customer")
		}
		return nil
	}
	s.send("bad", "good")
	s.start()
	s.awaitRuns(map[string]int{"good": 1})
	_, ch := s.dial()
	require.Eventually(t, func() bool {
		d, ok, err := ch.Get(s.queue+".dead", true)
		return err == nil && ok && string(d.Body) == "bad"
	}, 20*time.Second, 20*time.Millisecond)
	require.EqualValues(t, 3, attempts.Load())
	s.send("bad") // after a fix
	s.awaitRuns(map[string]int{"bad": 1, "good": 1})
}
