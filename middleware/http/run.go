package guardhttp

import (
	"context"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// A run is what a handler can find in its context.
type run = idempotent.Run

// Key returns the key of the request under which a handler runs, as the KeyFunc found it, or "" if
// ctx is not that of a handler behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if r := idempotent.FromContext(ctx, idempotent.HTTP); r != nil {
		return r.Key
	}
	return ""
}

// SetKeep chooses, from inside a handler, what is kept of its run, whatever the policy says. The
// last choice counts. If the handler is behind several middlewares, it is the choice for all of
// them. A handler that chooses KeepTombstone before its first byte says that its
// answer is a stream: nothing of it is recorded, and writes fail when the client has gone. An
// answer that cannot be replayed leaves a tombstone if KeepAnswer was chosen. In Reject mode
// KeepAnswer leaves a tombstone, too, and in Exclusive mode nothing is kept. SetKeep reports
// whether ctx is that of a handler behind the middleware; otherwise it does nothing.
func SetKeep(ctx context.Context, keep idempotency.Keep) bool {
	r := idempotent.FromContext(ctx, idempotent.HTTP)
	if r != nil {
		r.Choose(keep)
	}
	return r != nil
}
