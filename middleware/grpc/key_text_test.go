package guardgrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
)

// Two texts of which one would be taken for a retry of the other.
func TestKeys_noTwoTextsAreOneKey(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]guardgrpc.KeyFunc{
		"IdempotencyKey": guardgrpc.IdempotencyKey,
		"FromMetadata":   guardgrpc.FromMetadata("order"),
		"FromField":      guardgrpc.FromField("value"),
		"Join":           guardgrpc.Join(guardgrpc.FromField("value"), guardgrpc.FromField("value")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Distinct(t, adaptertest.Texts(), func(text string) (string, error) {
				ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("idempotency-key", text, "order", text))
				return key(ctx, &grpc.UnaryServerInfo{}, wrapperspb.String(text))
			})
		})
	}
}
