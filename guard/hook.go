package guard

import "context"

// A Hook receives what a Guard does, for traces, metrics and logs. Any of its functions may be
// nil. They are called one after the other for one call of Do or Acquire, and concurrently for
// several.
//
// A hook reports and decides nothing. The events of the end of a run and of a release come after
// the release was sent, so a hook cannot delay it. A panic in a hook is contained. Losses,
// renewals and orphans come from a goroutine that does nothing else: if hooks are too slow, events
// are dropped (Event.Dropped), renewals first.
type Hook struct {
	// Off is called before each acquire. If it returns true, the Guard skips the hook for that
	// acquire and for the lease that follows.
	Off func() bool
	// Label returns text that is added, after a space, to the label of the claim. An example is a
	// traceparent, by which a call that finds the key busy can link to the holder. It is called
	// after AcquireStart, with its context. It is called again after RunStart if the run may leave
	// a done marker, with the context of the run. A call that finds the key done can then link to
	// the run. Text beyond 512 bytes is left out.
	Label func(ctx context.Context) string
	// AcquireStart is called before the first request. The context that it returns must be derived
	// from ctx. It is passed to the store and to the other hooks of this acquire.
	AcquireStart func(ctx context.Context, e Event) context.Context
	// Wait is called once, when the key was found busy and the call begins to wait for it. While
	// it runs, calls behind it in the queue may overtake.
	Wait func(ctx context.Context, e Event)
	// AcquireEnd is called when the claim was granted (Err is nil) or the call has given up.
	AcquireEnd func(ctx context.Context, e Event)
	// Skip is called after AcquireEnd if the function will not run because the key is busy or
	// done.
	Skip func(ctx context.Context, e Event)
	// RunStart is called before the function. The context that it returns must be derived from
	// ctx. It is passed to the function.
	RunStart func(ctx context.Context, e Event) context.Context
	// RunEnd is called after the function has ended. Aborted is set if it did not return.
	RunEnd func(ctx context.Context, e Event)
	// Renew is called after each renewal. Err is set if there was no answer, or none for a quarter
	// of the TTL. If such an answer comes later, Renew is called again.
	Renew func(ctx context.Context, e Event)
	// Loss is called when a lease was lost. Err is the *LostError.
	Loss func(ctx context.Context, e Event)
	// Release is called once for each lease, after it was released or could not be (Err).
	Release func(ctx context.Context, e Event)
	// Call is called after each call to the store (Op), except renewals, which have Renew. The
	// outcome of a call that failed is unknown.
	Call func(ctx context.Context, e Event)
	// Orphan is called when a claim that the store may have was left to the background to be
	// released (Pending is set), and when that has ended. Err is then set if it was not released.
	Orphan func(ctx context.Context, e Event)
	// Warn is called for each setting or state of the store that makes it lose leases (Err), such
	// as a server that evicts keys when its memory is full. A Guard asks after its first lease, and
	// then at most once an hour, with a lease, if the backend can tell and a hook that was given to
	// New has Warn. What the last answer had in the same words is not reported again. If
	// New was given no hook at all, the Guard logs warnings to slog.Default.
	Warn func(ctx context.Context, e Event)
	// Background returns the context for calls to the store that no caller waits for. These are
	// renewals and the releases of orphans. ctx is empty, and the result must be derived from it.
	// Only hooks that were given to New are called.
	Background func(ctx context.Context) context.Context
	// Outcome is called by adapters (Adapter.Report) with the final result of a request, a task or
	// a tick.
	Outcome func(ctx context.Context, o Outcome)
}

// hooks calls several Hooks as one.
type hooks []Hook

// on returns the hooks that are not off.
func (hs hooks) on() hooks {
	for i := range hs {
		if hs[i].off() {
			rest := append(hooks(nil), hs[:i]...)
			for j := i + 1; j < len(hs); j++ {
				if !hs[j].off() {
					rest = append(rest, hs[j])
				}
			}
			return rest
		}
	}
	return hs
}

// off calls Off. A hook whose Off panics is not off.
func (h *Hook) off() (off bool) {
	if h.Off == nil {
		return false
	}
	defer func() { _ = recover() }()
	return h.Off()
}

// start calls the function of each hook that pick selects, and returns the resulting context.
func (hs hooks) start(
	ctx context.Context, e *Event, pick func(*Hook) func(context.Context, Event) context.Context,
) context.Context {
	for i := range hs {
		if f := pick(&hs[i]); f != nil {
			ctx = derive(ctx, func(ctx context.Context) context.Context { return f(ctx, *e) })
		}
	}
	return ctx
}

// background returns the context for calls that no caller waits for.
func (hs hooks) background() context.Context {
	ctx := context.Background()
	for i := range hs {
		if f := hs[i].Background; f != nil {
			ctx = deriveApart(ctx, f)
		}
	}
	return ctx
}

// deriveApart is derive in a goroutine of its own: f may end it, and what the Guard does in the
// background goes on.
func deriveApart(ctx context.Context, f func(context.Context) context.Context) context.Context {
	derived := make(chan context.Context, 1)
	go func() {
		result := ctx // unless derive returns
		defer func() { derived <- result }()
		result = derive(ctx, f)
	}()
	return <-derived
}

// derive calls f and returns its context, or ctx if f panics or returns none.
func derive(ctx context.Context, f func(context.Context) context.Context) (derived context.Context) {
	defer func() {
		if recover() != nil || derived == nil {
			derived = ctx
		}
	}()
	return f(ctx)
}

// call calls the function of each hook that pick selects, even if one of them panics or ends the
// goroutine.
func (hs hooks) call(ctx context.Context, e *Event, pick func(*Hook) func(context.Context, Event)) {
	for i := range hs {
		if f := pick(&hs[i]); f != nil {
			callThen(func() { f(ctx, *e) }, func() { hs[i+1:].call(ctx, e, pick) })
		}
	}
}

// callThen calls f and contains its panic. If f ends the goroutine, it calls rest before that.
func callThen(f, rest func()) {
	returned := false
	defer func() {
		if recover() == nil && !returned {
			rest()
		}
	}()
	f()
	returned = true
}

// label returns the label with what the hooks add to it.
func (hs hooks) label(ctx context.Context, label string) string {
	for i := range hs {
		f := hs[i].Label
		if f == nil {
			continue
		}
		var more string
		contain(func() { more = f(ctx) })
		if more != "" && len(label)+1+len(more) <= maxLabel {
			label += " " + more
		}
	}
	return label
}

// contain calls f and contains its panic.
func contain(f func()) {
	defer func() { _ = recover() }()
	f()
}

func pickAcquireStart(h *Hook) func(context.Context, Event) context.Context { return h.AcquireStart }
func pickRunStart(h *Hook) func(context.Context, Event) context.Context     { return h.RunStart }
func pickWait(h *Hook) func(context.Context, Event)                         { return h.Wait }
func pickAcquireEnd(h *Hook) func(context.Context, Event)                   { return h.AcquireEnd }
func pickSkip(h *Hook) func(context.Context, Event)                         { return h.Skip }
func pickRunEnd(h *Hook) func(context.Context, Event)                       { return h.RunEnd }
func pickRenew(h *Hook) func(context.Context, Event)                        { return h.Renew }
func pickLoss(h *Hook) func(context.Context, Event)                         { return h.Loss }
func pickRelease(h *Hook) func(context.Context, Event)                      { return h.Release }
func pickCall(h *Hook) func(context.Context, Event)                         { return h.Call }
func pickOrphan(h *Hook) func(context.Context, Event)                       { return h.Orphan }
func pickWarn(h *Hook) func(context.Context, Event)                         { return h.Warn }
