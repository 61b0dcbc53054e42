package guard

import (
	"context"
	"sync"
	"time"
)

// A Hook is told what a Guard does: for traces, metrics and logs. Any of its functions may be nil.
// They are called one after the other for one call of Do or Acquire, and concurrently for several.
//
// A hook reports and decides nothing. What it is told of a run's end and of a release comes after
// the release was sent, so it cannot hold that up, and a hook that panics is ignored. The functions
// for renewals and losses are called from a goroutine that does nothing else; where a hook blocks
// it, further such events are dropped once a thousand of them wait.
type Hook struct {
	// AcquireStart is called before the first attempt. The context it returns, which must be derived
	// from ctx, goes to the store and to the other hooks of this acquire.
	AcquireStart func(ctx context.Context, e Event) context.Context
	// Wait is called once when the key is found busy and the call begins to wait for it.
	Wait func(ctx context.Context, e Event)
	// AcquireEnd is called when the attempt was granted (Err is nil) or given up.
	AcquireEnd func(ctx context.Context, e Event)
	// Skip is called after AcquireEnd if the function will not run because the key is busy or done.
	Skip func(ctx context.Context, e Event)
	// RunStart is called before the function. The context it returns, which must be derived from
	// ctx, goes to the function.
	RunStart func(ctx context.Context, e Event) context.Context
	// RunEnd is called after the function has ended. Aborted is set if it did not return.
	RunEnd func(ctx context.Context, e Event)
	// Renew is called after each answer to a renewal. Err says that there was none.
	Renew func(ctx context.Context, e Event)
	// Loss is called when a lease was lost. Err is the *LostError.
	Loss func(ctx context.Context, e Event)
	// Release is called after the lease was given back, or could not be (Err).
	Release func(ctx context.Context, e Event)
}

// An Event is what a Hook is told. Fields that do not belong to the event are zero.
type Event struct {
	// Name is the kind of work (WithName). Key is the key as the caller gave it: it may hold
	// personal data.
	Name, Key string
	// Owner names the claim: the owner of WithOwner, or the claim's random ID.
	Owner string
	// Start is when what ended began; Duration is how long it took.
	Start    time.Time
	Duration time.Duration
	// Fence is the lease's.
	Fence uint64
	// Attempts is how often the store was asked, Waited how long the call waited for a busy key.
	Attempts int
	Waited   time.Duration
	// State, Left and Label are what the store last answered to the claim, as in Grant.
	State State
	Left  time.Duration
	Label string
	// Renewals is how often the lease has been renewed so far.
	Renewals int
	// Aborted says that the function panicked or ended its goroutine.
	Aborted bool
	// Joined says that the run took place under a lease which its context held already.
	Joined bool
	// Err is how it ended; nil is well.
	Err error
}

// hooks calls several Hooks as one.
type hooks []Hook

// start calls the function that pick picks of each hook, and returns the context that comes out.
func (hs hooks) start(ctx context.Context, e Event, pick func(*Hook) func(context.Context, Event) context.Context) context.Context {
	for i := range hs {
		if f := pick(&hs[i]); f != nil {
			ctx = contained(f, ctx, e)
		}
	}
	return ctx
}

// tell calls the function that pick picks of each hook.
func (hs hooks) tell(ctx context.Context, e Event, pick func(*Hook) func(context.Context, Event)) {
	for i := range hs {
		if f := pick(&hs[i]); f != nil {
			contained(func(ctx context.Context, e Event) context.Context { f(ctx, e); return ctx }, ctx, e)
		}
	}
}

// contained calls f and returns its context, or ctx if it panics or returns none.
func contained(f func(context.Context, Event) context.Context, ctx context.Context, e Event) (out context.Context) {
	defer func() {
		if recover() != nil || out == nil {
			out = ctx
		}
	}()
	return f(ctx, e)
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

// reporter tells hooks of what happens in the background, in order, from a goroutine of its own that
// ends when there is nothing left to tell: whoever reports is never held up.
type reporter struct {
	mu      sync.Mutex
	queue   []func()
	running bool
}

const longestReport = 1000

func (r *reporter) report(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= longestReport {
		return
	}
	r.queue = append(r.queue, f)
	if !r.running {
		r.running = true
		go r.run()
	}
}

func (r *reporter) run() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.running, r.queue = false, nil
			r.mu.Unlock()
			return
		}
		f := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		f()
	}
}
