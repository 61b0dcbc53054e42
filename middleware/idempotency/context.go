package idempotency

import (
	"context"
	"sync/atomic"
)

type runKey struct{}

// A Run is what a handler finds in its context. An adapter makes it; programs use Key and SetKeep.
type Run struct {
	key   string
	outer *Run         // the Run of a middleware around this one, or nil
	keep  atomic.Int32 // a Keep, plus one; 0 if the handler has not chosen
}

// Begin returns the context of a handler that runs for a call with the key.
func (r *Run) Begin(ctx context.Context, key string) context.Context {
	r.key = key
	r.outer, _ = ctx.Value(runKey{}).(*Run)
	return context.WithValue(ctx, runKey{}, r)
}

// Chosen returns what the handler has chosen by SetKeep, if it has.
func (r *Run) Chosen() (Keep, bool) {
	k := r.keep.Load()
	return Keep(k - 1), k > 0
}

// Key returns the key of the call under which a handler runs, as the KeyFunc found it, or "" if ctx
// is not that of a handler behind guardhttp or guardgrpc. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if r, ok := ctx.Value(runKey{}).(*Run); ok {
		return r.key
	}
	return ""
}

// SetKeep chooses, from inside a handler, what is kept of its run, whatever the policy says. The
// last choice counts. If the handler is behind several middlewares, it is the choice for all of
// them. An answer that cannot be replayed leaves a tombstone if KeepAnswer was chosen. In Reject
// mode KeepAnswer leaves a tombstone, too, and in Exclusive mode nothing is kept.
//
// An HTTP handler that chooses KeepTombstone before its first byte says that its answer is a
// stream: nothing of it is recorded, and writes fail when the client has gone.
//
// SetKeep reports whether ctx is that of a handler behind guardhttp or guardgrpc. Otherwise it does
// nothing.
func SetKeep(ctx context.Context, keep Keep) bool {
	r, ok := ctx.Value(runKey{}).(*Run)
	for ; r != nil; r = r.outer {
		r.keep.Store(int32(keep) + 1)
	}
	return ok
}

type trackKey struct{}

// Track returns a context for a call, and a function that returns the call's Outcome once guardhttp
// or guardgrpc has returned. It is for code in front of them, such as a log:
//
//	ctx, outcome := idempotency.Track(r.Context())
//	next.ServeHTTP(w, r.WithContext(ctx))
//	log.Print(r.URL.Path, outcome().Result)
//
// Result is empty if the call did not get to a middleware, or is still there: an
// http.TimeoutHandler answers before. The function is safe for concurrent use.
func Track(ctx context.Context) (context.Context, func() Outcome) {
	p := new(atomic.Pointer[Outcome])
	return context.WithValue(ctx, trackKey{}, p), func() (o Outcome) {
		if set := p.Load(); set != nil {
			o = *set
		}
		return o
	}
}

// Observe notifies the code in front of an adapter, and observers, of the end of a call.
func (s *Settings) Observe(ctx context.Context, o Outcome) {
	if tracked, ok := ctx.Value(trackKey{}).(*atomic.Pointer[Outcome]); ok {
		tracked.Store(&o)
	}
	for _, observer := range s.Observers {
		func() {
			defer func() { _ = recover() }() // observers report and decide nothing
			observer(ctx, o)
		}()
	}
}
