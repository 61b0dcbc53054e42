package guardhttp

import (
	"context"
	"sync/atomic"
)

type runKey struct{}

// A run is what a handler can find in its context.
type run struct {
	key  string
	keep atomic.Int32 // a Keep, plus one; 0 if the handler has not chosen
}

// Key returns the key of the request under which a handler runs, as the KeyFunc found it, or "" if
// ctx is not that of a handler behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if r, ok := ctx.Value(runKey{}).(*run); ok {
		return r.key
	}
	return ""
}

// SetKeep chooses, from inside a handler, what is kept of its run, whatever the policy says. The
// last choice counts. A handler that chooses KeepTombstone before its first byte says that its
// answer is a stream: nothing of it is recorded, and writes fail when the client has gone. An
// answer that cannot be replayed leaves a tombstone if KeepAnswer was chosen. In Reject mode
// KeepAnswer leaves a tombstone, too, and in Exclusive mode nothing is kept. SetKeep reports
// whether ctx is that of a handler behind the middleware; otherwise it does nothing.
func SetKeep(ctx context.Context, keep Keep) bool {
	r, ok := ctx.Value(runKey{}).(*run)
	if ok {
		r.keep.Store(int32(keep) + 1)
	}
	return ok
}

// streams reports whether the handler has chosen to leave a tombstone.
func (r *run) streams() bool {
	keep, ok := r.chosen()
	return ok && keep == KeepTombstone
}

// chosen returns what the handler has chosen, if it has.
func (r *run) chosen() (Keep, bool) {
	k := r.keep.Load()
	return Keep(k - 1), k > 0
}
