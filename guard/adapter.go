package guard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// An Adapter is the part of a Guard for packages that adapt a framework to it, such as those below
// middleware/. Applications do not need it. It is safe for concurrent use.
type Adapter struct{ guard *Guard }

// Adapter returns the part of the Guard for packages that adapt a framework to it.
func (g *Guard) Adapter() Adapter { return Adapter{g} }

// Name returns the kind of work of a call with these options (WithName). Hooks receive it as
// Event.Name. It is "" if neither New nor the options set one.
func (a Adapter) Name(opts ...Option) string {
	set, _ := a.guard.set.with(opts)
	return set.name
}

// Label returns the label of a call with these options (WithLabel), without what hooks add.
func (a Adapter) Label(opts ...Option) string {
	set, _ := a.guard.set.with(opts)
	return set.label
}

// Namespace returns the namespace of the Guard (WithNamespace), or "".
func (a Adapter) Namespace() string { return a.guard.set.namespace }

// Store returns the name of the backend's package, and the address of its server if it has one
// (driver.Describer): "single 10.0.0.7:6379".
func (a Adapter) Store() string {
	return strings.TrimSpace(a.guard.facts.Name + " " + a.guard.facts.Addr)
}

// Given reports whether New was given the option of that name, such as "WithTTL", with another
// value than the zero one. If the default of an adapter differs from the Guard's, the adapter then
// leaves the option to the Guard.
func (a Adapter) Given(option string) bool { return a.guard.given[option] }

// Check returns why an adapter cannot use the Guard with these options for its leases, or nil. Call
// it in the adapter's New. The error is of *SettingError:
//
//   - New had neither WithNamespace nor WithoutNamespace: services that share a store would share
//     the keys of their adapters
//   - refused names an option that is among opts, or that New was given with another value than the
//     zero one: the adapter cannot honor it. The value of the map says why, and what to use instead
//   - opts has a namespace: what an adapter keeps has the namespace of its Guard
//
// Check does not look at the values of other options: see Guard.Wrap.
func (a Adapter) Check(refused map[string]string, opts ...Option) error {
	var errs []error
	if a.guard.set.namespace == "" && !a.Given("WithoutNamespace") {
		errs = append(errs, &SettingError{Setting: "WithNamespace", Reason: noNamespace})
	}
	for _, option := range slices.Sorted(maps.Keys(a.guard.given)) {
		if reason, bad := reasonFor(refused, option); bad && a.Given(option) {
			errs = append(errs, &SettingError{Setting: option, Reason: "of guard.New " + reason})
		}
	}
	return errors.Join(append(errs, a.CheckOptions(refused, opts...))...)
}

// CheckOptions is Check for the options of a single lease alone.
func (a Adapter) CheckOptions(refused map[string]string, opts ...Option) error {
	s := settings{given: map[string]bool{}}
	_, _ = s.with(opts) // it notes them
	var errs []error
	for _, option := range slices.Sorted(maps.Keys(s.given)) {
		reason, bad := reasonFor(refused, option)
		if option == "WithNamespace" || option == "WithoutNamespace" {
			reason, bad = "is for guard.New: all that an adapter keeps has the namespace of its Guard", true
		}
		if bad {
			errs = append(errs, &SettingError{Setting: option, Reason: reason})
		}
	}
	return errors.Join(errs...)
}

// reasonFor returns why an option is refused. An adapter that refuses WithOnce refuses WithOncePer.
func reasonFor(refused map[string]string, option string) (reason string, bad bool) {
	if option == "WithOncePer" {
		option = "WithOnce"
	}
	reason, bad = refused[option]
	return reason, bad
}

const noNamespace = "is needed, so that services on one store do not take the keys of each other's adapters: " +
	`give guard.New a name such as WithNamespace("billing"), or WithoutNamespace() if no other program uses the store`

// Notifies reports whether the backend notifies waiters and watches (driver.Subscriber).
func (a Adapter) Notifies() bool { return a.guard.notifies() }

// Auxiliary returns an option for a lease that the adapter holds in addition to that of the run.
// For example, such a lease keeps two processes from looking for missed ticks at the same time.
// Hooks receive PurposeAuxiliary, so that they do not count it as a run, a skip or a lease of the
// application.
func (a Adapter) Auxiliary() Option { return func(s *settings) { s.purpose = PurposeAuxiliary } }

// Probe returns an option for a call after which the adapter handles ErrBusy itself, for example
// by another call. Hooks receive no Skip for it: the adapter reports the final result (Report).
func (a Adapter) Probe() Option { return func(s *settings) { s.probe = true } }

// Detached returns an option of Do, Wrap and Acquire: the context of the caller bounds the wait for
// the lease, and not the run. The context of the run has its values. It ends when the lease is lost
// or released.
func (a Adapter) Detached() Option { return func(s *settings) { s.detached = true } }

// An Outcome is the final result of a request, a task or a tick, as its adapter saw it. Adapter,
// Name, Result and Skipped have few and fixed values, so they can be labels of a metric.
type Outcome struct {
	// Adapter is the adapter's name, such as "http". Name is the kind of work; if it is empty,
	// Report sets it to the value of WithName.
	Adapter, Name string
	// Result is the adapter's word for the outcome, such as "replayed". Skipped, if it is not
	// empty, is why the work did not run, for an adapter that has used Probe or has asked no
	// Guard.
	Result, Skipped string
	// Key and Owner are the key and the owner of the claim, if the adapter may report them.
	// Telemetry redacts them.
	Key, Owner string
	// Label identifies the holder, or the run that finished, if the work was skipped because of
	// it.
	Label string
	// Start is when the request, task or tick arrived, and Duration how long it took.
	Start    time.Time
	Duration time.Duration
	// Fence is the fence of the lease under which the work ran, or 0.
	Fence uint64
	// Aborted means that the handler panicked or ended its goroutine.
	Aborted bool
	// Refused is why the adapter refused the work, or a retry of it, if that is a mistake in the
	// setup: no key or scope could be found, for example. Loggers write it at level warn.
	Refused error
	Err     error
}

// Report calls Hook.Outcome of the Guard's hooks and of those in opts. If there are none, a refusal
// is logged to slog.Default, at most once a minute.
func (a Adapter) Report(ctx context.Context, o Outcome, opts ...Option) {
	set, _ := a.guard.set.with(opts)
	if o.Name == "" {
		o.Name = set.name
	}
	a.guard.reportingHooks(set).call(func(h *Hook) { send(ctx, h.Outcome, o) })
}

// A HeldLease is a lease that a Guard holds.
type HeldLease struct {
	Key   string    `json:"key"` // as it was given to Do or Acquire
	Name  string    `json:"name,omitempty"`
	ID    string    `json:"id"`
	Owner string    `json:"owner,omitempty"` // "" unless WithOwner named one
	Fence uint64    `json:"fence"`
	Seat  int       `json:"seat,omitempty"`
	Since time.Time `json:"since"` // by the clock of this process
}

// Held returns the leases that the Guard has held for at least that long, the longest first. It
// returns at most n of them, and more is how many others there are. It does not ask the store.
// Leases of an adapter's own (Auxiliary) are left out.
func (a Adapter) Held(atLeast time.Duration, n int) (held []HeldLease, more int) {
	g := a.guard
	held = g.heldSince(g.clock.Now() - atLeast)
	slices.SortFunc(held, func(a, b HeldLease) int { return a.Since.Compare(b.Since) })
	n = min(max(n, 0), len(held))
	return held[:n:n], len(held) - n
}

// heldSince returns the leases that were granted at an instant or before.
func (g *Guard) heldSince(at time.Duration) (held []HeldLease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.schedule.heap {
		for h := t.holder; h != nil; h = h.next {
			if h.granted > at || h.over.Load() || h.set.purpose == PurposeAuxiliary {
				continue
			}
			l := HeldLease{
				Key: h.key, Name: h.set.name, ID: t.claim.ID, Fence: h.fence.Load(), Seat: t.seat, Since: g.clock.Time(h.granted),
			}
			if h.owner != l.ID {
				l.Owner = h.owner
			}
			held = append(held, l)
		}
	}
	return held
}
