package guardgrpc

import (
	"context"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// Key returns the key of the call under which a handler runs, as the KeyFunc found it, or "" if
// ctx is not that of a handler behind the interceptor. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if r := idempotent.FromContext(ctx, idempotent.GRPC); r != nil {
		return r.Key
	}
	return ""
}

// SetKeep chooses, from inside a handler, what is kept of its run, whatever the policy says. The
// last choice counts. If the handler is behind several interceptors, it is the choice for all of
// them. A reply that cannot be replayed leaves a tombstone if KeepAnswer was chosen.
// In Reject mode, KeepAnswer leaves a tombstone, too. In Exclusive mode, nothing is kept. SetKeep
// reports whether ctx is that of a handler behind the interceptor. Otherwise it does nothing.
func SetKeep(ctx context.Context, keep idempotency.Keep) bool {
	r := idempotent.FromContext(ctx, idempotent.GRPC)
	if r != nil {
		r.Choose(keep)
	}
	return r != nil
}
