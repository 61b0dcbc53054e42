package guardgrpc_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// ready returns a server of claims.Claims whose calls are guarded, with a client of it.
func ready(handle handler, opts ...grpc.DialOption) (conn *grpc.ClientConn, stop func()) {
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	once, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, idempotency.WithGlobalKeys())
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(once))
	server.RegisterService(service(handle), nil)

	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	conn, err = grpc.NewClient("passthrough:///", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		panic(err)
	}
	return conn, func() {
		_ = conn.Close()
		server.GracefulStop()
		_ = g.Close(context.Background())
	}
}

func ExampleNew() {
	claims := 0
	conn, stop := ready(func(_ context.Context, req *wrapperspb.StringValue) (any, error) {
		claims++
		return wrapperspb.String(fmt.Sprint(req.GetValue(), " is claim ", claims)), nil
	})
	defer stop()

	call := func(key, request string) {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "idempotency-key", key)
		var header metadata.MD
		reply := new(wrapperspb.StringValue)
		err := conn.Invoke(ctx, "/claims.Claims/Claim", wrapperspb.String(request), reply, grpc.Header(&header))
		fmt.Println(status.Code(err), guardgrpc.ResultOf(err), reply.GetValue(), header["idempotency-replayed"])
	}
	call("8e03978e-40d5", "coupon 1")
	call("8e03978e-40d5", "coupon 1") // a retry
	call("8e03978e-40d5", "coupon 2") // another request
	// Output:
	// OK  coupon 1 is claim 1 []
	// OK  coupon 1 is claim 1 [true]
	// InvalidArgument mismatch  []
}

// called returns a context and the method of a call with a key, as a server gets it.
func called(method, key string) (context.Context, *grpc.UnaryServerInfo) {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("idempotency-key", key))
	return ctx, &grpc.UnaryServerInfo{FullMethod: method}
}

// Rejecting keeps no replies: once for each key, and a refusal after that.
func ExampleWithMode_reject() {
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	once, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, idempotency.WithGlobalKeys(), idempotency.WithMode(idempotency.Reject))
	if err != nil {
		panic(err)
	}
	claim := func(_ context.Context, req any) (any, error) { return req, nil }
	ctx, info := called("/claims.Claims/Claim", "8e03978e-40d5")
	for range 2 {
		_, err = once(ctx, wrapperspb.String("coupon 1"), info, claim)
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// AlreadyExists
}

// Calls of each user run one at a time, whatever they do. Nothing is remembered.
func ExampleWithMode_exclusive() {
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	oneAtATime, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, idempotency.WithGlobalKeys(),
		idempotency.WithMode(idempotency.Exclusive), idempotency.WithGroup("account"))
	if err != nil {
		panic(err)
	}
	deposit := func() {
		ctx, info := called("/bank.Accounts/Deposit", "ada")
		_, err := oneAtATime(ctx, wrapperspb.String("10"), info, func(_ context.Context, req any) (any, error) { return req, nil })
		fmt.Println("deposit:", status.Code(err))
	}
	ctx, info := called("/bank.Accounts/Withdraw", "ada")
	_, err = oneAtATime(ctx, wrapperspb.String("10"), info, func(_ context.Context, req any) (any, error) {
		deposit() // another call of the same user, meanwhile
		return req, nil
	})
	fmt.Println("withdraw:", status.Code(err))
	deposit()
	// Output:
	// deposit: Aborted
	// withdraw: OK
	// deposit: OK
}

// The store does not take the record of a reply, so the client does not get the reply either.
func ExampleWithAnswerAfterRecord() {
	fails := func(_ context.Context, n int, _ driver.Claim, _ driver.After) (bool, error) {
		if n == 1 {
			return false, guardtest.Fail(driver.KindAuth)
		}
		return false, guardtest.ErrUnscripted
	}
	g, err := guard.New(&guardtest.Scripted{OnRelease: fails}, guard.WithNamespace("claims"))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	once, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, idempotency.WithGlobalKeys(), idempotency.WithAnswerAfterRecord())
	if err != nil {
		panic(err)
	}
	ctx, info := called("/claims.Claims/Claim", "8e03978e-40d5")
	_, err = once(ctx, wrapperspb.String("coupon 1"), info, func(_ context.Context, req any) (any, error) { return req, nil })
	fmt.Println(status.Code(err), guardgrpc.ResultOf(err), "- the handler ran:", guard.Ran(err))
	// Output: Unavailable unrecorded - the handler ran: true
}

// A printed is the stream of a call whose header metadata is printed.
type printed struct{ grpc.ServerTransportStream }

func (printed) SetHeader(md metadata.MD) error {
	fmt.Println(map[string][]string(md)) // as text, metadata is redacted
	return nil
}

// A one-time password is for the client of the first call. The retry gets the rest of the reply.
func ExampleWithoutMetadata() {
	g, err := guard.New(memory.New(), guard.WithNamespace("claims"))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	once, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, idempotency.WithGlobalKeys(), guardgrpc.WithoutMetadata("one-time-password"))
	if err != nil {
		panic(err)
	}
	ctx, info := called("/claims.Claims/Claim", "8e03978e-40d5")
	ctx = grpc.NewContextWithServerTransportStream(ctx, printed{})
	for range 2 {
		_, _ = once(ctx, wrapperspb.String("coupon 1"), info, func(ctx context.Context, req any) (any, error) {
			return req, grpc.SetHeader(ctx, metadata.Pairs("one-time-password", "271828", "claim", "17"))
		})
	}
	// Output:
	// map[claim:[17] one-time-password:[271828]]
	// map[claim:[17] idempotency-replayed:[true]]
}

// One call of a tenant waits at a time. Another one is refused at once, and other tenants still
// have places.
func ExampleWithMaxScopeWaiters() {
	g, err := guard.New(memory.New(), guard.WithNamespace("claims"))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	reached, end := make(chan struct{}), make(chan struct{})
	tenant := func(context.Context, *grpc.UnaryServerInfo, any) (string, error) { return "acme", nil }
	once, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, guardgrpc.WithScope(tenant), idempotency.WithWait(time.Minute), idempotency.WithMaxScopeWaiters(1),
		idempotency.WithLease(guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { reached <- struct{}{} }})))
	if err != nil {
		panic(err)
	}
	ctx, info := called("/claims.Claims/Claim", "8e03978e-40d5")
	handle := func(ctx context.Context, req any) (any, error) {
		reached <- struct{}{}
		<-end
		return req, ctx.Err()
	}
	var calls sync.WaitGroup
	for range 2 { // one runs, and one waits
		calls.Go(func() { _, _ = once(ctx, wrapperspb.String("coupon 1"), info, handle) })
		<-reached
	}
	_, err = once(ctx, wrapperspb.String("coupon 1"), info, handle)
	fmt.Println(status.Code(err), guardgrpc.ResultOf(err))
	close(end)
	calls.Wait()
	// Output: Aborted in_flight
}

// A tenant has one record at a time. A call with a further key is refused, and retries of what was
// recorded are not.
func ExampleWithMaxScopeRecords() {
	g, err := guard.New(memory.New(), guard.WithNamespace("claims"))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	tenant := func(context.Context, *grpc.UnaryServerInfo, any) (string, error) { return "acme", nil }
	once, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, guardgrpc.WithScope(tenant), idempotency.WithMaxScopeRecords(1))
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"first", "second", "first"} {
		ctx, info := called("/claims.Claims/Claim", key)
		_, err = once(ctx, wrapperspb.String("coupon 1"), info, func(_ context.Context, req any) (any, error) { return req, nil })
		fmt.Println(key, status.Code(err))
	}
	// Output:
	// first OK
	// second ResourceExhausted
	// first OK
}

func ExampleClientKeys() {
	keys, err := guardgrpc.ClientKeys()
	if err != nil {
		panic(err)
	}
	seen := map[string]bool{}
	conn, stop := ready(func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
		seen[idempotency.Key(ctx)] = true
		return req, nil
	}, grpc.WithChainUnaryInterceptor(keys)) // and retrying interceptors behind it
	defer stop()

	for range 2 { // two calls, each with its own key
		reply := new(wrapperspb.StringValue)
		err = conn.Invoke(context.Background(), "/claims.Claims/Claim", wrapperspb.String("a"), reply)
	}
	fmt.Println(len(seen), err)
	// Output: 2 <nil>
}

func ExampleWithKey() {
	keys, err := guardgrpc.ClientKeys()
	if err != nil {
		panic(err)
	}
	runs := 0
	conn, stop := ready(func(_ context.Context, req *wrapperspb.StringValue) (any, error) {
		runs++
		return req, nil
	}, grpc.WithChainUnaryInterceptor(keys))
	defer stop()

	ctx := idempotency.WithKey(context.Background(), "order-17") // the caller retries by itself
	for range 3 {
		reply := new(wrapperspb.StringValue)
		err = conn.Invoke(ctx, "/claims.Claims/Claim", wrapperspb.String("a"), reply)
	}
	fmt.Println(runs, err)
	// Output: 1 <nil>
}
