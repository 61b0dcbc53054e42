package idempotency

import (
	"context"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// WithKey returns a context whose calls have this key, for a client that makes the attempts of a
// call itself. It has an effect on calls through the ClientKeys of guardhttp and guardgrpc.
//
// A key has 1 to 255 bytes of printable ASCII, and is sent quoted if it has a space or a quote (see
// IdempotencyKey of the adapters). A call with any other key fails before it is sent: in HTTP with
// a *KeyError, in gRPC with INVALID_ARGUMENT. In gRPC, keys belong to a method, so calls of several
// methods can share one. Two different calls of one method must not.
func WithKey(ctx context.Context, key string) context.Context { return keys.WithKey(ctx, key) }
