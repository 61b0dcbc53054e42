// Package jetstream_test tries guardjetstream on a real server of NATS.
package jetstream_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardjetstream "github.com/seed-1795987d/onerun/middleware/jetstream"
)

func start(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(30*time.Second))
	return s
}

type stand struct {
	t        *testing.T
	s        *server.Server
	dir      string
	js       jetstream.JetStream
	c        jetstream.Consumer
	g        *guard.Guard
	outcomes chan guard.Outcome
}

func newStand(t *testing.T, ackWait time.Duration) *stand {
	st := &stand{t: t, dir: t.TempDir(), outcomes: make(chan guard.Outcome, 100)}
	st.s = start(t, st.dir, -1)
	t.Cleanup(func() { st.s.Shutdown(); st.s.WaitForShutdown() })
	nc, err := nats.Connect(st.s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	st.js, err = jetstream.New(nc)
	require.NoError(t, err)
	_, err = st.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	st.c, err = st.js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait})
	require.NoError(t, err)
	st.g, err = guard.New(memory.New(), guard.WithNamespace("x"), guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { st.outcomes <- o }}))
	require.NoError(t, err)
	return st
}

func (st *stand) consume(h guardjetstream.Handler, opts ...guardjetstream.Option) {
	m, err := guardjetstream.New(st.g, nil, append([]guardjetstream.Option{guardjetstream.WithConsumer(st.c), guardjetstream.WithOnce(time.Hour)}, opts...)...)
	require.NoError(st.t, err)
	// two consumers, as two processes
	for range 2 {
		cc, err := st.c.Consume(m(h), jetstream.PullMaxMessages(1), jetstream.PullExpiry(time.Second))
		require.NoError(st.t, err)
		st.t.Cleanup(cc.Stop)
	}
}

func (st *stand) pub() {
	_, err := st.js.Publish(st.t.Context(), "s.a", []byte("x"))
	require.NoError(st.t, err)
}
func (st *stand) idle() {
	require.Eventually(st.t, func() bool {
		ctx, c := context.WithTimeout(context.Background(), time.Second)
		defer c()
		i, err := st.c.Info(ctx)
		return err == nil && i.NumAckPending == 0 && i.NumPending == 0 && i.AckFloor.Stream > 0
	}, 30*time.Second, 50*time.Millisecond)
}

// A run that is longer than the AckWait is delivered once.
func TestServer_keepsAMessageThatRuns(t *testing.T) {
	t.Parallel()
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	const ackWait = time.Second
	st := newStand(t, ackWait)
	var n atomic.Int32
	begun := time.Now()
	st.consume(func(context.Context, jetstream.Msg) error { n.Add(1); time.Sleep(3 * ackWait); return nil })
	st.pub()
	st.idle()
	i, err := st.c.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, n.Load())
	// It extends the AckWait after each third of it. A process that stands still cannot.
	missed := uint64(stalls.Since(begun) / (ackWait / 2))
	require.LessOrEqual(t, i.Delivered.Consumer, 1+missed)
}

func TestServer_deliversAMessageThatFailedAgain(t *testing.T) {
	t.Parallel()
	st := newStand(t, 5*time.Second)
	var n atomic.Int32
	st.consume(func(context.Context, jetstream.Msg) error {
		if n.Add(1) < 3 {
			return errors.New("no")
		}
		return nil
	}, guardjetstream.WithRetryDelay(func(jetstream.Msg, error) time.Duration { return 50 * time.Millisecond }))
	st.pub()
	st.idle()
	require.EqualValues(t, 3, n.Load())
}

func TestServer_deliversATerminatedMessageNoMore(t *testing.T) {
	t.Parallel()
	st := newStand(t, 5*time.Second)
	var n atomic.Int32
	st.consume(func(context.Context, jetstream.Msg) error { n.Add(1); return guardjetstream.ErrTerminate })
	st.pub()
	st.idle()
	require.EqualValues(t, 1, n.Load())
}

// The handler goes on after its lease is lost. Another consumer gets the message meanwhile.
func TestServer_deliversAMessageWhoseLeaseIsLost(t *testing.T) {
	t.Parallel()
	st := newStand(t, 600*time.Millisecond)
	var n atomic.Int32
	st.consume(func(ctx context.Context, _ jetstream.Msg) error {
		if n.Add(1) == 1 {
			<-ctx.Done()
			time.Sleep(2 * time.Second) // ignores it
			return ctx.Err()
		}
		return nil
	}, guardjetstream.WithLease(guard.WithMaxHold(500*time.Millisecond)))
	st.pub()
	st.idle()
	require.EqualValues(t, 2, n.Load())
}

// The acknowledgement comes while the server is away.
func TestServer_thatRestartsGetsTheAcknowledgement(t *testing.T) {
	t.Parallel()
	st := newStand(t, 6*time.Second) // for as long it tries
	var n atomic.Int32
	port := st.s.Addr().(*net.TCPAddr).Port
	running, end := make(chan struct{}, 9), make(chan struct{})
	st.consume(func(context.Context, jetstream.Msg) error {
		n.Add(1)
		running <- struct{}{}
		<-end
		return nil
	})
	st.pub()
	<-running
	st.s.Shutdown()
	st.s.WaitForShutdown()
	close(end)
	st.s = start(t, st.dir, port)
	st.idle()
	require.EqualValues(t, 1, n.Load())
	o := <-st.outcomes
	require.Equal(t, "ran", o.Result)
	require.NoError(t, o.Err)
}
