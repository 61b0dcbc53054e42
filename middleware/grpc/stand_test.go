package guardgrpc_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

const (
	claim = "/claims.Claims/Claim"
	other = "/claims.Claims/Other"
	// soon is longer than any busy machine takes for what takes no time.
	soon = 20 * time.Second
)

// A handler is that of both methods of the service.
type handler func(ctx context.Context, req *wrapperspb.StringValue) (any, error)

// service describes a service whose methods call h.
func service(h handler) *grpc.ServiceDesc {
	method := func(full string) func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
		return func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			req := new(wrapperspb.StringValue)
			if err := decode(req); err != nil {
				return nil, err
			}
			run := func(ctx context.Context, req any) (any, error) { return h(ctx, req.(*wrapperspb.StringValue)) }
			if intercept == nil {
				return run(ctx, req)
			}
			return intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: full}, run)
		}
	}
	return &grpc.ServiceDesc{ServiceName: "claims.Claims", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		{MethodName: "Claim", Handler: method(claim)}, {MethodName: "Other", Handler: method(other)},
	}}
}

// counted returns a handler that replies with the request and the number of its run.
func counted(work func(ctx context.Context)) (handler, *atomic.Int64) {
	runs := new(atomic.Int64)
	return func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
		run := runs.Add(1)
		if work != nil {
			work(ctx)
		}
		return text(req.GetValue(), run), nil
	}, runs
}

// text returns the reply of the n-th run.
func text(request string, n int64) *wrapperspb.StringValue {
	return wrapperspb.String(request + " by run " + string(rune('0'+n)))
}

// newGuard returns a Guard over a store, or over one of its own, which is closed with the test.
func newGuard(t testing.TB, store guard.Locker, opts ...guard.Option) *guard.Guard {
	t.Helper()
	if store == nil {
		store = memory.New()
	}
	g, err := guard.New(store, append([]guard.Option{guard.WithNamespace("test"), guard.WithTTL(time.Minute)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return g
}

// tenant is the scope of the calls of a stand.
func tenant(ctx context.Context, _ *grpc.UnaryServerInfo, _ any) (string, error) {
	return metadata.ValueFromIncomingContext(ctx, "tenant")[0], nil
}

// A stand is a server behind the interceptor, with a client of it.
type stand struct {
	server *grpc.Server
	conn   *grpc.ClientConn
	log    *outcomes
	addr   string // with setup.tcp
}

// A setup is how a stand is made. What is not set has a default.
type setup struct {
	guard   *guard.Guard
	key     guardgrpc.KeyFunc
	opts    []guardgrpc.Option
	front   []grpc.UnaryServerInterceptor
	client  []grpc.DialOption
	tcp     bool
	noScope bool
}

func (s setup) serve(t testing.TB, h handler) *stand {
	t.Helper()
	log := new(outcomes)
	if s.guard == nil {
		s.guard = newGuard(t, nil)
	}
	if s.key == nil {
		s.key = guardgrpc.IdempotencyKey
	}
	opts := []guardgrpc.Option{idempotency.WithObserver(log.observer())}
	if !s.noScope {
		opts = append(opts, guardgrpc.WithScope(tenant))
	}
	once, err := guardgrpc.New(s.guard, s.key, append(opts, s.opts...)...)
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(append(s.front, once)...), grpc.WaitForHandlers(true))
	server.RegisterService(service(h), nil)
	st := &stand{server: server, log: log}
	target, dial := "passthrough:///bufconn", []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if s.tcp {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		st.addr = l.Addr().String()
		target = "passthrough:///" + st.addr
		go func() { _ = server.Serve(l) }()
	} else {
		l := bufconn.Listen(1 << 20)
		dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		go func() { _ = server.Serve(l) }()
	}
	st.conn, err = grpc.NewClient(target, append(dial, s.client...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, st.conn.Close())
		server.Stop()
	})
	return st
}

// An answer is what a client got.
type answer struct {
	value           string
	header, trailer metadata.MD
	err             error
}

func (a answer) replayed() bool { return len(a.header["idempotency-replayed"]) > 0 }

// call calls Claim of tenant acme with a key, if that is not empty.
func (s *stand) call(ctx context.Context, key, value string) answer {
	md := []string{"tenant", "acme"}
	if key != "" {
		md = append(md, "idempotency-key", key)
	}
	return s.invoke(metadata.AppendToOutgoingContext(ctx, md...), claim, value)
}

func (s *stand) invoke(ctx context.Context, method, value string) answer {
	var a answer
	reply := new(wrapperspb.StringValue)
	a.err = s.conn.Invoke(ctx, method, wrapperspb.String(value), reply, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	a.value = reply.GetValue()
	return a
}

// start is call in a goroutine.
func (s *stand) start(ctx context.Context, key string) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- s.call(ctx, key, "a") }()
	return c
}

// receive receives from a channel before long.
func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		require.FailNow(t, "there was no "+what)
		panic("unreachable")
	}
}

// outcomes are those that an observer was notified of.
type outcomes struct {
	mu  sync.Mutex
	all []idempotency.Outcome
}

func (o *outcomes) observer() func(context.Context, idempotency.Outcome) {
	return func(_ context.Context, outcome idempotency.Outcome) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, outcome)
	}
}

// next removes and returns the first Outcome.
func (o *outcomes) next(t testing.TB) (first idempotency.Outcome) {
	t.Helper()
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.all) == 0 {
			return false
		}
		first, o.all = o.all[0], o.all[1:]
		return true
	}, soon, time.Millisecond, "an outcome")
	return first
}

func requireRan(t testing.TB, a answer, value string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, value, a.value)
	require.False(t, a.replayed(), "it is a replay")
}

func requireReplay(t testing.TB, a answer, value string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, value, a.value)
	require.Equal(t, []string{"true"}, a.header["idempotency-replayed"])
}
