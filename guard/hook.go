package guard

import (
	"context"
	"slices"
)

// A Hook receives what a Guard does, for traces, metrics and logs. Any of its functions may be
// nil. They are called one after the other for one call of Do or Acquire, and concurrently for
// several.
//
//	function      called                                      with
//	Off           before each acquire
//	AcquireStart  before the first request to the store       Event
//	Label         after AcquireStart and RunStart
//	Wait          once the call begins to wait                WaitEvent
//	AcquireEnd    after the grant, or when the call gives up  AcquireEvent
//	Skip          after AcquireEnd, if nothing will run       SkipEvent
//	RunStart      before the function                         RunEvent
//	RunEnd        after the function                          RunEndEvent
//	Renew         after each renewal                          RenewEvent
//	Loss          after the loss of a lease                   LossEvent
//	Release       after a release, or the attempt             ReleaseEvent
//	Call          after each other call to the store          CallEvent
//	Orphan        when the work on an orphan begins and ends  OrphanEvent
//	Warn          if the store may lose leases                error
//	Background    before calls that no caller waits for
//	Outcome       by adapters, with a final result            Outcome
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
	Wait func(ctx context.Context, e WaitEvent)
	// AcquireEnd is called when the claim was granted (Err is nil) or the call has given up.
	AcquireEnd func(ctx context.Context, e AcquireEvent)
	// Skip is called after AcquireEnd if the function will not run because the key is busy or
	// done.
	Skip func(ctx context.Context, e SkipEvent)
	// RunStart is called before the function. The context that it returns must be derived from
	// ctx. It is passed to the function.
	RunStart func(ctx context.Context, e RunEvent) context.Context
	// RunEnd is called after the function has ended. Aborted is set if it did not return.
	RunEnd func(ctx context.Context, e RunEndEvent)
	// Renew is called after each renewal. Err is set if there was no answer, or none for a quarter
	// of the TTL. If such an answer comes later, Renew is called again.
	Renew func(ctx context.Context, e RenewEvent)
	// Loss is called when a lease was lost. Err is the *LostError.
	Loss func(ctx context.Context, e LossEvent)
	// Release is called once for each lease, after it was released or could not be (Err).
	Release func(ctx context.Context, e ReleaseEvent)
	// Call is called after each call to the store (Op), except renewals, which have Renew. The
	// outcome of a call that failed is unknown.
	Call func(ctx context.Context, e CallEvent)
	// Orphan is called when a claim that the store may have was left to the background to be
	// released (Pending is set), and when that has ended. Err is then set if it was not released.
	Orphan func(ctx context.Context, e OrphanEvent)
	// Warn is called for each setting or state of the store that makes it lose leases, such as a
	// server that evicts keys when its memory is full. A Guard asks after its first lease, and
	// then at most once an hour, with a lease, if the backend can tell and a hook that was given to
	// New has Warn. What the last answer had in the same words is not reported again. If
	// New was given no hook at all, the Guard logs warnings to slog.Default.
	Warn func(ctx context.Context, err error)
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

func (hs hooks) on() hooks {
	i := slices.IndexFunc(hs, Hook.off)
	if i < 0 {
		return hs
	}
	return append(slices.Clone(hs[:i]), slices.DeleteFunc(slices.Clone(hs[i+1:]), Hook.off)...)
}

// off calls Off. A hook whose Off panics is not off.
func (h Hook) off() (off bool) {
	if h.Off == nil {
		return false
	}
	defer func() { _ = recover() }()
	return h.Off()
}

// start calls a function of each hook with an event, unless it is nil, and returns the resulting
// context.
func start[E any](
	ctx context.Context, hs hooks, e E, of func(*Hook) func(context.Context, E) context.Context,
) context.Context {
	for i := range hs {
		if f := of(&hs[i]); f != nil {
			ctx = derive(ctx, func(ctx context.Context) context.Context { return f(ctx, e) })
		}
	}
	return ctx
}

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

// call calls f with each hook, even if f panics or ends the goroutine with one of them.
func (hs hooks) call(f func(*Hook)) {
	if len(hs) == 0 {
		return
	}
	defer hs[1:].call(f)
	defer func() { _ = recover() }()
	f(&hs[0])
}

// send calls a function of a hook with an event, unless it is nil.
func send[E any](ctx context.Context, f func(context.Context, E), e E) {
	if f != nil {
		f(ctx, e)
	}
}

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

func contain(f func()) {
	defer func() { _ = recover() }()
	f()
}
