package guardgrpc_test

import (
	"context"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// retryPolicy is gRPC's own, for a client that retries quickly.
const retryPolicy = `{"methodConfig": [{"name": [{"service": "claims.Claims"}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "0.05s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]}}]}`

// keys returns the options of a client behind ClientKeys and other interceptors.
func keys(t testing.TB, more ...grpc.UnaryClientInterceptor) []grpc.DialOption {
	t.Helper()
	first, err := guardgrpc.ClientKeys()
	require.NoError(t, err)
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(append([]grpc.UnaryClientInterceptor{first}, more...)...)}
}

// A losingServer runs the handler and loses the first replies.
type losingServer struct {
	replies atomic.Int64 // to lose
	mu      sync.Mutex
	keys    []string // of the calls
	cut     func()   // cuts the connection; nil is an error instead
}

func (l *losingServer) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	l.mu.Lock()
	l.keys = append(l.keys, metadata.ValueFromIncomingContext(ctx, "idempotency-key")...)
	l.mu.Unlock()
	reply, err := next(ctx, req)
	if l.replies.Add(-1) < 0 {
		return reply, err
	}
	if l.cut != nil {
		l.cut()
		<-ctx.Done() // the reply has nowhere to go
	}
	return nil, status.Error(codes.Unavailable, "the reply was lost")
}

// The retries of a call have its key, whichever code makes them, so that the call runs once.
func TestClient_retriesHaveTheSameKey(t *testing.T) {
	t.Parallel()
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	quick := retry.WithBackoff(retry.BackoffLinear(10 * time.Millisecond))
	for name, c := range map[string]struct {
		client []grpc.DialOption
		cut    bool
		chosen string // by the caller, which retries itself
	}{
		"the retry policy":                        {append(keys(t), grpc.WithDefaultServiceConfig(retryPolicy)), false, ""},
		"the retry policy, a lost connection":     {append(keys(t), grpc.WithDefaultServiceConfig(retryPolicy)), true, ""},
		"go-grpc-middleware":                      {keys(t, retry.UnaryClientInterceptor(quick, retry.WithMax(5))), false, ""},
		"go-grpc-middleware, a lost connection":   {keys(t, retry.UnaryClientInterceptor(quick, retry.WithMax(5))), true, ""},
		"the caller":                              {keys(t), false, "order 7"},
		"the caller, a lost connection":           {keys(t), true, `order "7"`},
		"the caller beside the policy, and a cut": {append(keys(t), grpc.WithDefaultServiceConfig(retryPolicy)), true, "order-7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, runs := counted(nil)
			lost := new(losingServer)
			lost.replies.Store(1)
			client, conns := c.client, new(connections)
			if c.cut {
				lost.replies.Store(2)
				lost.cut = conns.cut
				client = append(client, grpc.WithContextDialer(conns.dial))
			}
			s := setup{tcp: true, front: []grpc.UnaryServerInterceptor{lost.intercept}, client: client}.serve(t, h)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "acme")
			if c.chosen != "" {
				ctx = idempotency.WithKey(ctx, c.chosen)
			}
			a := s.invoke(ctx, claim, "a")
			for over := time.Now().Add(soon); c.chosen != "" && a.err != nil && time.Now().Before(over); {
				time.Sleep(5 * time.Millisecond) // as callers do between attempts
				a = s.invoke(ctx, claim, "a")
			}
			requireReplay(t, a, "a by run 1")
			require.EqualValues(t, 1, runs.Load())
			requireRan(t, s.invoke(idempotency.WithKey(ctx, "another"), claim, "b"), "b by run 2")
			lost.mu.Lock()
			defer lost.mu.Unlock()
			require.GreaterOrEqual(t, len(lost.keys), 3)
			for _, key := range lost.keys[:len(lost.keys)-1] {
				require.Equal(t, lost.keys[0], key)
			}
			if c.chosen == "" {
				require.Regexp(t, uuid, lost.keys[0])
			}
		})
	}
}

// connections are those of a client, which a test cuts.
type connections struct {
	mu  sync.Mutex
	all []net.Conn
}

func (c *connections) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, conn)
	}
	return conn, err
}

func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close()
	}
	c.all = nil
}

// A call that is refused because the first one runs is tried again by the retry policy after the
// time that the server says, and then gets the first reply.
func TestClient_thePolicyWaitsAsTheServerSays(t *testing.T) {
	t.Parallel()
	begun, gate := make(chan struct{}, 1), make(chan struct{})
	h, runs := counted(func(context.Context) { begun <- struct{}{}; pass(t, gate) })
	s := setup{
		client: append(keys(t), grpc.WithDefaultServiceConfig(retryPolicy)),
		opts:   []guardgrpc.Option{idempotency.WithRetryAfter(300 * time.Millisecond)},
	}.serve(t, h)
	first := s.start(t.Context(), "k")
	receive(t, begun, "a run")
	start := time.Now()
	second := s.start(t.Context(), "k")
	require.Equal(t, idempotency.InFlight, s.log.next(t).Result)
	close(gate)
	requireRan(t, receive(t, first, "reply"), "a by run 1")
	requireReplay(t, receive(t, second, "reply"), "a by run 1")
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	require.EqualValues(t, 1, runs.Load())
}

// Which key a call has.
func TestClient_keys(t *testing.T) {
	t.Parallel()
	got := make(chan metadata.MD, 1)
	h := func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		got <- md
		return wrapperspb.String("a"), nil
	}
	some, err := guardgrpc.ClientKeys(guardgrpc.WithClientMethods(claim), guardgrpc.WithClientMetadata("X-Request-Id"))
	require.NoError(t, err)
	plain := setup{client: keys(t)}.serve(t, h)
	restricted := setup{client: []grpc.DialOption{grpc.WithChainUnaryInterceptor(some)}}.serve(t, h)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "acme")
	send := func(s *stand, ctx context.Context, method, name string) []string {
		t.Helper()
		require.NoError(t, s.invoke(ctx, method, "a").err)
		return receive(t, got, "call")[name]
	}
	first := send(plain, ctx, claim, "idempotency-key")
	require.NotEqual(t, first, send(plain, ctx, claim, "idempotency-key"))
	require.Len(t, send(plain, ctx, other, "idempotency-key"), 1)
	own := metadata.AppendToOutgoingContext(ctx, "Idempotency-Key", "own")
	require.Equal(t, []string{"own"}, send(plain, own, claim, "idempotency-key"))
	require.Equal(t, []string{"chosen"}, send(plain, idempotency.WithKey(ctx, "chosen"), other, "idempotency-key"))
	require.Equal(t, []string{`"a b\\\"c"`}, send(plain, idempotency.WithKey(ctx, `a b\"c`), other, "idempotency-key"))
	require.Len(t, send(restricted, ctx, claim, "x-request-id"), 1)
	require.Empty(t, send(restricted, ctx, other, "x-request-id"))

	for _, bad := range []string{"", "a\n", "\u00e9"} {
		require.Equal(t, codes.InvalidArgument, status.Code(plain.invoke(idempotency.WithKey(ctx, bad), claim, "a").err), "%q", bad)
	}
	require.Empty(t, got, "nothing was sent")
	for setting, opt := range map[string]guardgrpc.ClientOption{
		"WithClientMethods": guardgrpc.WithClientMethods("Claim"), "WithClientMetadata": guardgrpc.WithClientMetadata("a b"), "Option": nil,
	} {
		_, err := guardgrpc.ClientKeys(opt)
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, setting, refused.Setting)
	}
}

// gRPC's own retry policy stops at an answer that has a header (gRFC A6), and a replay has one. So
// an interceptor in front that turns a replay into an error ends the attempts of the policy. Those
// of a retrying interceptor go on.
func TestClient_thePolicyStopsAtAReplayThatBecomesAnError(t *testing.T) {
	t.Parallel()
	retries := retry.UnaryClientInterceptor(retry.WithMax(5), retry.WithCodes(codes.Unavailable), retry.WithBackoff(retry.BackoffLinear(time.Millisecond)))
	for name, c := range map[string]struct {
		client   []grpc.DialOption
		lost     int64 // replies
		attempts int
		err      codes.Code
	}{
		"the policy, and a first reply that is lost": {append(keys(t), grpc.WithDefaultServiceConfig(retryPolicy)), 1, 2, codes.OK},
		"the policy, and a replay that is lost":      {append(keys(t), grpc.WithDefaultServiceConfig(retryPolicy)), 2, 2, codes.Unavailable},
		"an interceptor, and a replay that is lost":  {keys(t, retries), 2, 3, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, runs := counted(nil)
			front := new(losingServer)
			front.replies.Store(c.lost)
			s := setup{
				client: c.client, front: []grpc.UnaryServerInterceptor{front.intercept},
				guard: newGuard(t, nil, guard.WithNamespace("test")),
			}.serve(t, h)
			a := s.call(t.Context(), "k", "a")
			require.Equal(t, c.err, status.Code(a.err), "%v", a.err)
			require.Len(t, front.keys, c.attempts)
			require.EqualValues(t, 1, runs.Load())
		})
	}
}

// A refusal has no header, also if the handler has set one that was held back. So the policy tries
// again, and the retry gets the reply whose record has arrived meanwhile.
func TestClient_thePolicyRetriesWhatWasNotRecorded(t *testing.T) {
	t.Parallel()
	store := &guardtest.Scripted{Inner: memory.New(), OnRelease: func(_ context.Context, n int, _ driver.Claim, _ driver.After) (bool, error) {
		if n <= 3 { // the tries of the run
			return false, guardtest.Fail(driver.KindConnection)
		}
		return false, guardtest.ErrUnscripted
	}}
	h, runs := counted(func(ctx context.Context) { _ = grpc.SetHeader(ctx, metadata.Pairs("x-a", "1")) })
	s := setup{
		guard: newGuard(t, store, guard.WithNamespace("test")), client: append(keys(t), grpc.WithDefaultServiceConfig(retryPolicy)),
		opts: []guardgrpc.Option{idempotency.WithAnswerAfterRecord(), idempotency.WithRetryAfter(200 * time.Millisecond)},
	}.serve(t, h)
	a := s.call(t.Context(), "k", "a")
	requireReplay(t, a, "a by run 1")
	require.Equal(t, []string{"1"}, a.header["x-a"])
	require.EqualValues(t, 1, runs.Load())
	require.ErrorIs(t, s.log.next(t).Err, guard.ErrMarker)
}
