package guardgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

func TestKeys_areThoseOfThePage(t *testing.T) {
	t.Parallel()
	store := adaptertest.NewKeyStore()
	once, err := guardgrpc.New(store.NewGuard(t), guardgrpc.IdempotencyKey, idempotency.WithGlobalKeys())
	require.NoError(t, err)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k1"))
	run := func(context.Context, any) (any, error) { return wrapperspb.String("done"), nil }
	_, err = once(ctx, wrapperspb.String("claim"), &grpc.UnaryServerInfo{FullMethod: claim}, run)
	require.NoError(t, err)
	store.Check(t, "../../docs/grpc.md", "guardgrpc", map[string]string{"HASH": `[\w-]+`})
}
