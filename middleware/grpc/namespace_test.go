package guardgrpc_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// call sends the request of a client through an interceptor, and returns the reply. It reports
// errors of New and of the call.
func call(g *guard.Guard, reply string, opts ...guardgrpc.Option) (string, error) {
	intercept, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, append(opts, idempotency.WithGlobalKeys())...)
	if err != nil {
		return "", err
	}
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("idempotency-key", "order-1"))
	ctx = grpc.NewContextWithServerTransportStream(ctx, &serverStream{})
	got, err := intercept(ctx, wrapperspb.String("order"), &grpc.UnaryServerInfo{FullMethod: claim}, func(context.Context, any) (any, error) {
		return wrapperspb.String(reply), nil
	})
	if err != nil {
		return "", err
	}
	return got.(*wrapperspb.StringValue).GetValue(), nil
}

// A serverStream takes the metadata of a reply.
type serverStream struct{}

func (*serverStream) Method() string               { return claim }
func (*serverStream) SetHeader(metadata.MD) error  { return nil }
func (*serverStream) SendHeader(metadata.MD) error { return nil }
func (*serverStream) SetTrailer(metadata.MD) error { return nil }

func TestNew_optionsOfGuard(t *testing.T) {
	t.Parallel()
	replaced := []string{"WithWait", "WithOnce", "WithOwner", "WithOwnerFrom"}
	alone := slices.Concat(replaced, []string{"WithShared", "WithLimit"})
	for name, of := range map[string]struct {
		mode    idempotency.Mode
		refused []string
	}{"Replay": {idempotency.Replay, alone}, "Reject": {idempotency.Reject, alone}, "Exclusive": {idempotency.Exclusive, replaced}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Adapter{Start: func(_ *testing.T, g *guard.Guard, lease ...guard.Option) error {
				_, err := call(g, "done", idempotency.WithMode(of.mode), idempotency.WithLease(lease...))
				return err
			}, Refused: of.refused, ByGuard: of.refused}.Test(t)
		})
	}
}

func TestNew_servicesOfTwoNamespacesNeverMeet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	services := map[string]*guard.Guard{}
	for _, name := range []string{"shop", "billing"} {
		g, err := guard.New(single.New(server.Client(t)), guard.WithNamespace(name))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		services[name] = g
	}
	for _, text := range []string{"", "again "} {
		for name, g := range services {
			got, err := call(g, text+name)
			require.NoError(t, err)
			require.Equal(t, name, got, "the first reply of this service")
		}
	}
}
