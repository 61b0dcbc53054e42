package kafka

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A site is a broker with the topics orders and dead, and a store of leases.
type site struct {
	t      *testing.T
	broker *kfake.Cluster
	store  *store
	handle func(ctx context.Context, event string) error // nil succeeds

	mu   sync.Mutex
	runs map[string]int // of handlers that have succeeded
}

func newSite(t *testing.T) *site {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "dead"))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	return &site{t: t, broker: broker, store: &store{Locker: memory.New()}, runs: map[string]int{}}
}

// A store can be unavailable.
type store struct {
	*memory.Locker
	away atomic.Bool
}

func (s *store) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if s.away.Load() {
		return driver.Answer{}, errors.New("the store is unavailable")
	}
	return s.Locker.TryAcquire(ctx, c)
}

// A process is a consumer in a process of its own.
type process struct {
	client *kgo.Client
	cancel context.CancelFunc
	ended  chan error
}

func (s *site) newClient(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(s.broker.ListenAddrs()...))...)
	require.NoError(s.t, err)
	s.t.Cleanup(client.Close)
	return client
}

func (s *site) start() *process {
	s.t.Helper()
	g, err := guard.New(s.store, guard.WithNamespace("billing"), guard.WithTTL(2*time.Second))
	require.NoError(s.t, err)
	client := s.newClient(kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(100*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{client: client, cancel: cancel, ended: make(chan error, 1)}
	c := &Consumer{Client: client, Guard: g, Poisoned: "dead", Attempts: 3, Wait: 50 * time.Millisecond, Delay: 10 * time.Millisecond, Handle: s.count}
	go func() { p.ended <- c.Run(ctx) }()
	s.t.Cleanup(func() { p.stop(); require.NoError(s.t, g.Close(context.Background())) })
	return p
}

// stop ends the process in good order.
func (p *process) stop() {
	p.cancel()
	p.client.Close()
	p.ended <- <-p.ended
}

func (s *site) count(ctx context.Context, r *kgo.Record) error {
	event := string(r.Value)
	if s.handle != nil {
		if err := s.handle(ctx, event); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[event]++
	return nil
}

// send sends events. One with an ID has that in a header.
func (s *site) send(ids bool, events ...string) {
	s.t.Helper()
	client := s.newClient()
	for _, event := range events {
		r := &kgo.Record{Topic: "orders", Value: []byte(event)}
		if ids {
			r.Headers = []kgo.RecordHeader{{Key: "event-id", Value: []byte(event)}}
		}
		require.NoError(s.t, client.ProduceSync(s.t.Context(), r).FirstErr())
	}
}

// awaitCommit waits until the offset of the group is n.
func (s *site) awaitCommit(n int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	_, err := s.broker.WaitGroupInfo(ctx, "billing", func(*kfake.GroupInfo) bool { return s.committed() == n })
	require.NoError(s.t, err)
}

// committed returns the offset of the group.
func (s *site) committed() int64 {
	group := s.broker.GroupInfo("billing")
	if group == nil {
		return 0
	}
	return group.Commits["orders"][0].Offset
}

func (s *site) requireRuns(want map[string]int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(s.t, want, s.runs)
}

func TestConsumer_anEventThatWasSentTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.send(true, "a", "b", "a")
	s.send(false, "a", "a") // records without a name are different ones
	s.start()
	s.awaitCommit(5)
	s.requireRuns(map[string]int{"a": 3, "b": 1})
}

// The offset is committed after the run, so a process that dies loses nothing.
func TestConsumer_commitsAfterTheRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.handle = func(context.Context, string) error {
		if s.committed() != 0 {
			return errors.New("it was committed before")
		}
		return nil
	}
	s.send(true, "a")
	s.start()
	s.awaitCommit(1)
	s.requireRuns(map[string]int{"a": 1})
}

// A process that dies after the run and before the commit has left the marker.
func TestConsumer_anOffsetThatWasNotCommitted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var refuse atomic.Bool
	refuse.Store(true)
	refused := make(chan struct{}, 1)
	s.broker.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.KeepControl()
		if !refuse.Load() {
			return nil, nil, false
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		return nil, errors.New("the connection is lost"), true
	})
	s.send(true, "a")
	first := s.start()
	<-refused
	first.stop()
	require.Zero(t, s.committed())
	refuse.Store(false)
	s.start()
	s.awaitCommit(1)
	s.requireRuns(map[string]int{"a": 1})
}

// The partition goes to another process while the first one still handles a record of it. That the
// key is busy is no attempt.
func TestConsumer_aRebalanceDuringARun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	begun, end := make(chan string, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	s.handle = func(_ context.Context, event string) error { begun <- event; <-end; return nil }
	s.send(true, "a")
	first := s.start()
	defer release()
	<-begun
	require.NoError(t, first.client.LeaveGroupContext(t.Context())) // as after a session timeout
	s.start()
	_, err := s.broker.WaitGroupInfo(t.Context(), "billing", func(g *kfake.GroupInfo) bool { return len(g.Members) == 1 && g.NumAssigned() == 1 })
	require.NoError(t, err)
	select {
	case <-begun:
		t.Fatal("two runs at a time")
	case <-time.After(300 * time.Millisecond): // the second process waits for the key
	}
	require.Zero(t, s.committed())
	release()
	s.awaitCommit(1)
	s.requireRuns(map[string]int{"a": 1})
}

// A record that fails for good does not hold up later ones, and leaves no marker.
func TestConsumer_aPoisonedRecord(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var attempts atomic.Int64
	s.handle = func(_ context.Context, event string) error {
		if event == "bad" && attempts.Add(1) <= 3 || event == "flaky" && attempts.Add(1) <= 5 {
			return errors.New("no such customer")
		}
		return nil
	}
	s.send(true, "bad", "flaky", "good")
	s.start()
	s.awaitCommit(3)
	s.requireRuns(map[string]int{"flaky": 1, "good": 1})
	dead := s.newClient(kgo.ConsumeTopics("dead"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	records := dead.PollFetches(t.Context()).Records()
	require.Len(t, records, 1)
	require.Equal(t, "bad", string(records[0].Value))
	require.Equal(t, kgo.RecordHeader{Key: "error", Value: []byte("no such customer")}, records[0].Headers[1])
	s.send(true, "bad") // after a fix
	s.awaitCommit(4)
	s.requireRuns(map[string]int{"bad": 1, "flaky": 1, "good": 1})
}

// An outage of the store costs no attempt.
func TestConsumer_anOutageOfTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.store.away.Store(true)
	s.send(true, "a")
	s.start()
	time.Sleep(300 * time.Millisecond)
	require.Zero(t, s.committed())
	s.requireRuns(map[string]int{})
	s.store.away.Store(false)
	s.awaitCommit(1)
	s.requireRuns(map[string]int{"a": 1})
}
