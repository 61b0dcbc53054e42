package guardgrpc_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// The test binary is its own server process when this is set to the address of a Redis server.
const workerEnv = "ONERUN_TEST_GRPC_WORKER"

// work serves calls, each of which counts its run in Redis, until the process's input ends. The
// first run of "slow" never ends.
func work(addr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	g, err := guard.New(single.New(rdb), guard.WithNamespace("test"), guard.WithTTL(time.Second))
	if err != nil {
		return err
	}
	once, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, idempotency.WithGlobalKeys(), idempotency.WithWait(soon))
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(once))
	server.RegisterService(service(func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
		run, err := rdb.Incr(ctx, "runs:"+req.GetValue()).Result()
		fmt.Println("runs", req.GetValue(), run)
		if req.GetValue() == "slow" && run == 1 {
			select {}
		}
		return wrapperspb.String(fmt.Sprint("run ", run, " by process ", os.Getpid())), err
	}), nil)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listens", l.Addr())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	return server.Serve(l)
}

// A server process that dies takes neither its replies nor its keys with it: the retry policy of
// the client turns to the other process, which replays what was done, and runs what was not.
func TestProcesses_oneDies(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t)
	dies, lives := processtest.Self(t, workerEnv+"="+rdb.Addr()), processtest.Self(t, workerEnv+"="+rdb.Addr())
	targets := manual.NewBuilderWithScheme("processes")
	targets.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: dies.Says("listens")}, {Addr: lives.Says("listens")}}})
	conn, err := grpc.NewClient("processes:///", append(keys(t), grpc.WithResolvers(targets),
		grpc.WithDefaultServiceConfig(retryPolicy), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	call := func(ctx context.Context, value string) (string, metadata.MD, error) {
		reply, header := new(wrapperspb.StringValue), metadata.MD{}
		err := conn.Invoke(ctx, claim, wrapperspb.String(value), reply, grpc.Header(&header))
		return reply.GetValue(), header, err
	}

	chosen := idempotency.WithKey(t.Context(), "k")
	first, _, err := call(chosen, "quick")
	require.NoError(t, err)
	require.Contains(t, first, "run 1")
	require.Equal(t, "quick 1", dies.Says("runs"))
	slow := make(chan answer, 1)
	go func() {
		value, header, err := call(t.Context(), "slow")
		slow <- answer{value: value, header: header, err: err}
	}()
	require.Equal(t, "slow 1", dies.Says("runs"))
	dies.Kill()

	again, header, err := call(chosen, "quick")
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, []string{"true"}, header["idempotency-replayed"])
	a := receive(t, slow, "reply of the call whose server has died")
	requireRan(t, a, fmt.Sprint("run 2 by process ", lives.PID()))
}
