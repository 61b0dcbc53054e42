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
// it, further renewals are dropped once a thousand events wait.
type Hook struct {
	// Off is asked before each acquire. Where it returns true the hook is told nothing of that, nor of the lease that comes of it: so a hook that has nobody
	// to pass things on to costs next to nothing.
	Off func() bool
	// Label returns what is added, after a blank, to the label of the claim that is about to be sent: a traceparent, by which those who find
	// the key busy can link to who holds it. It is called after AcquireStart, with its context, and once more after RunStart of a run that may leave a done
	// marker, with the context of the run, so that those who find the key done can link to the run. What does not fit into 512 bytes is left out.
	Label func(ctx context.Context) string
	// AcquireStart is called before the first attempt. The context it returns, which must be derived
	// from ctx, goes to the store and to the other hooks of this acquire.
	AcquireStart func(ctx context.Context, e Event) context.Context
	// Wait is called once when the key is found busy and the call begins to wait for it.
	Wait func(ctx context.Context, e Event)
	// AcquireEnd is called when the attempt was granted (Err is nil) or given up.
	AcquireEnd func(ctx context.Context, e Event)
	// Skip is called after AcquireEnd if the function will not run because the key is busy, unless WithProbe was given, or done.
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
	// Release is called once for each lease, after it was given back, or could not be (Err).
	Release func(ctx context.Context, e Event)
	// Call is called after each call to the store (Op) but those that renew, of which Renew tells. What became of one that failed is not known.
	Call func(ctx context.Context, e Event)
	// Orphan is called when a claim that may be in the store has been left to the background, to be released there (Pending is set), and when
	// that has ended.
	Orphan func(ctx context.Context, e Event)
	// Background returns the context for calls to the store that no caller waits for: renewals and the releases of orphans. ctx is empty, and what comes
	// back must be derived from it. Only the hooks that New was given are asked.
	Background func(ctx context.Context) context.Context
	// Outcome is called by the adapters for HTTP, tasks and ticks with what became of one: see Guard.Report.
	Outcome func(ctx context.Context, e Event)
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
	// TTL is the lease's. Used, of a renewal, is how much of it had passed when the answer came; of the end of a run and of a
	// release, the most that a renewal of the lease has used. Held, of a release, is how long the lease was held.
	TTL, Used, Held time.Duration
	// Op is the call to the store that a Call was, or for which an Orphan was left. Node is the node of a quorum that was called, if it was one: not the
	// Guard tells of that but the store, such as redlock.WithHook.
	Op   Op
	Node string
	// Attempts is how often the store was asked: 0 for the release of a lease that the store knew no more. Waited how long the call waited for a busy key. Waits says that
	// it has begun to wait: Wait was called.
	Attempts int
	Waited   time.Duration
	Waits    bool
	// State, Left and Label are what the store last answered to the claim, as in Grant.
	State State
	Left  time.Duration
	Label string
	// Previous, where granted, is the label of the last holder that the call waited for. Takeover says that this holder's time had run out, as far as
	// was known: it has probably died.
	Previous string
	Takeover bool
	// MissedWakeUp, where granted, says that the call found out by itself that the key had been released: the store, which tells those who wait (Notifier, Queuer),
	// has not told it. It is not said of a call that has waited for less than a quarter of a second, which may not have begun to listen.
	MissedWakeUp bool
	// Renewals is how often the lease has been renewed so far, Failures how often in a row that has failed.
	Renewals, Failures int
	// Origin, of what befalls a lease, is the context that AcquireStart returned for it; nil else.
	Origin context.Context //nolint:containedctx // which is what it tells
	// Pending says that the work on an Orphan begins.
	Pending bool
	// Aside says that the lease is an adapter's own, beside that of the run (WithAside).
	Aside bool
	// HandedOn says that the lease went from one call of the Guard to the next, without the store: on, of a Release, or from
	// another, of an AcquireEnd.
	HandedOn bool
	// Aborted says that the function panicked or ended its goroutine.
	Aborted bool
	// Joined says that the run took place under a lease which its context held already.
	Joined bool
	// Adapter says whose Outcome it is, such as "http", and Result what became of the request, task or tick. Skipped, where it is set, says why
	// that was not run, although it will not be Skip that tells of it. All are few and fixed words.
	Adapter, Result, Skipped string
	// Err is how it ended; nil is well.
	Err error
}

// hooks calls several Hooks as one.
type hooks []Hook

// on returns those of the hooks that are not off.
func (hs hooks) on() hooks {
	for i := range hs {
		if hs[i].off() {
			var rest hooks
			for j := range hs {
				if j < i || j > i && !hs[j].off() {
					rest = append(rest, hs[j])
				}
			}
			return rest
		}
	}
	return hs
}

// off asks Off. A hook whose Off panics is not off.
func (h *Hook) off() (off bool) {
	if h.Off == nil {
		return false
	}
	defer func() { _ = recover() }()
	return h.Off()
}

// start calls the function that pick picks of each hook, and returns the context that comes out.
func (hs hooks) start(ctx context.Context, e *Event, pick func(*Hook) func(context.Context, Event) context.Context) context.Context {
	for i := range hs {
		if f := pick(&hs[i]); f != nil {
			ctx = begun(f, ctx, e)
		}
	}
	return ctx
}

// tell calls the function that pick picks of each hook.
func (hs hooks) tell(ctx context.Context, e *Event, pick func(*Hook) func(context.Context, Event)) {
	for i := range hs {
		if f := pick(&hs[i]); f != nil {
			told(f, ctx, e)
		}
	}
}

// begun calls f and returns its context, or ctx if it panics or returns none.
func begun(f func(context.Context, Event) context.Context, ctx context.Context, e *Event) (out context.Context) {
	defer func() {
		if recover() != nil || out == nil {
			out = ctx
		}
	}()
	return f(ctx, *e)
}

// told calls f, and contains its panic.
func told(f func(context.Context, Event), ctx context.Context, e *Event) {
	defer func() { _ = recover() }()
	f(ctx, *e)
}

// labelled calls f and returns its text, or nothing if it panics.
func labelled(f func(context.Context) string, ctx context.Context) (label string) {
	defer func() { _ = recover() }()
	return f(ctx)
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
func pickOutcome(h *Hook) func(context.Context, Event)                      { return h.Outcome }

// label returns the label with what the hooks add to it.
func (hs hooks) label(ctx context.Context, label string) string {
	for i := range hs {
		f := hs[i].Label
		if f == nil {
			continue
		}
		if more := labelled(f, ctx); more != "" && len(label)+1+len(more) <= maxLabel {
			label += " " + more
		}
	}
	return label
}

// background returns the context for what no caller waits for.
func (hs hooks) background() context.Context {
	ctx := context.Background()
	for i := range hs {
		if f := hs[i].Background; f != nil {
			ctx = begun(func(ctx context.Context, _ Event) context.Context { return f(ctx) }, ctx, &Event{})
		}
	}
	return ctx
}

// TellCall calls Call, if there is one, and contains its panic. It is for stores that stand on several others.
func (h *Hook) TellCall(ctx context.Context, e Event) {
	if h.Call != nil {
		told(h.Call, ctx, &e)
	}
}

// Report tells the hooks, with the Guard's options and these, what became of a request, a task or a tick. It is for adapters, which know more of
// that than a Guard does: e.Adapter and e.Result say it. Where e.Name is empty it is that of WithName.
func (g *Guard) Report(ctx context.Context, e Event, opts ...Option) {
	set, _ := g.set.with(opts)
	if e.Name == "" {
		e.Name = set.name
	}
	hooks(set.hooks).tell(ctx, &e, pickOutcome)
}

// reporter tells hooks of what happens in the background, in order, from a goroutine of its own that
// ends when there is nothing left to tell: whoever reports is never held up.
type reporter struct {
	mu      sync.Mutex
	queue   []func()
	running bool
}

const longestReport = 1000

// report has f called. It is dropped if that is allowed and too much waits.
func (r *reporter) report(f func(), drop bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if drop && len(r.queue) >= longestReport {
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
