package idempotent

import (
	"context"
	"sync/atomic"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// runKey is the key of a Run in a context. Each adapter has its own, because a gRPC handler may
// run inside an HTTP handler.
type runKey Adapter

// A Run is what a handler can find in its context.
type Run struct {
	Key   string       // as the KeyFunc has found it
	Outer *Run         // that of a middleware around this one, or nil
	keep  atomic.Int32 // a Keep, plus one; 0 if the handler has not chosen
}

// FromContext returns the Run of the handler whose context is ctx, or nil if there is none.
func FromContext(ctx context.Context, a Adapter) *Run {
	r, _ := ctx.Value(runKey(a)).(*Run)
	return r
}

// Choose sets what to keep of the run, and of those around it: they have the same answer.
func (r *Run) Choose(keep idempotency.Keep) {
	for ; r != nil; r = r.Outer {
		r.keep.Store(int32(keep) + 1)
	}
}

// Streams reports whether the handler has chosen to leave a tombstone.
func (r *Run) Streams() bool {
	keep, ok := r.chosen()
	return ok && keep == idempotency.KeepTombstone
}

// chosen returns what the handler has chosen, if it has.
func (r *Run) chosen() (idempotency.Keep, bool) {
	k := r.keep.Load()
	return idempotency.Keep(k - 1), k > 0
}
