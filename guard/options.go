package guard

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Defaults and bounds of the settings.
const (
	// DefaultTTL is the TTL of a lease unless WithTTL sets another.
	DefaultTTL = 30 * time.Second
	// MinTTL is the shortest TTL, 100 ms. Below it, the margin for drifting clocks and late timers
	// would be most of the lease.
	MinTTL = driver.MinTTL
	// Forever, given to WithWait, waits until the context ends.
	Forever = time.Duration(math.MaxInt64)

	// periodSlack is the part of a period of WithOncePer that is left free before the next start.
	periodSlack = 10

	maxLabel = 512
	maxName  = 128
)

// WithName sets the kind of work, such as "nightly-report". It is one of few names, by which
// hooks, spans and metrics are grouped. A key is not a name: there may be millions of keys, and
// they may hold personal data. Valid UTF-8, of at most 128 bytes. Defaults to "", no name.
func WithName(name string) Option {
	return func(s *settings) {
		if !utf8.ValidString(name) {
			s.refuse("WithName", fmt.Sprintf("%q", name), "must be valid UTF-8")
			return
		}
		s.text(&s.name, "WithName", name, maxName, "\x00")
	}
}

// WithNamespace puts "namespace::" before every key, so that several applications can share a
// store. Name the application, such as "billing". It must not contain a colon, a brace or a NUL
// byte. At most 128 bytes. A Guard without a namespace refuses a key that begins with one. The
// adapters below middleware/ and package inspect need WithNamespace, or WithoutNamespace, in New.
// Defaults to "", none.
func WithNamespace(namespace string) Option {
	return func(s *settings) { s.text(&s.namespace, "WithNamespace", namespace, maxName, ":{}\x00") }
}

// WithoutNamespace says that keys have no namespace on purpose, so that adapters do not need
// WithNamespace. The keys of adapters are then shared with every other program on this store that
// has no namespace: an HTTP client of one service can get the answer of another, and jobs of one
// name run in one of the programs. It is for a store that only one application uses. Of
// WithNamespace and WithoutNamespace, the last one counts. Defaults to off.
func WithoutNamespace() Option {
	return func(s *settings) {
		s.note("WithoutNamespace", true)
		s.namespace = ""
	}
}

// WithTTL sets how long a lease lasts unless it is renewed. So it is how long the key stays taken
// after its holder has died. The Guard renews the lease at each third of it, so the TTL has
// nothing to do with how long the work takes. At least MinTTL. Defaults to DefaultTTL, 30 s.
func WithTTL(ttl time.Duration) Option {
	return func(s *settings) {
		if ttl < MinTTL {
			s.refuse("WithTTL", ttl, fmt.Sprintf("must be at least %v", MinTTL))
			return
		}
		s.span(&s.ttl, "WithTTL", ttl)
	}
}

// WithWait makes a call wait up to d for a busy key, instead of returning ErrBusy at once. Forever
// waits until the context ends. While it waits, the call also tries again after passing errors of
// the store.
//
// A call that waits for d returns after d and at most a second more, in which the store can still
// answer. A call that does not wait stops waiting for the store's answer after a third of the TTL,
// and after at least 5 s. If the TTL is shorter than that, the TTL is the limit. For a hard limit,
// use the context.
//
// The waiting calls of one Guard for one key are served in the order in which they came, if they
// name the same owner or none. A call that does not wait asks the store at once. WithFair orders
// the calls of all processes. Defaults to 0, no wait.
func WithWait(d time.Duration) Option {
	return func(s *settings) {
		s.note("WithWait", d != 0)
		if d < 0 {
			s.refuse("WithWait", d, "must not be negative")
			return
		}
		s.wait = d
	}
}

// WithFair serves calls that wait for the key (WithWait) in the order in which they came, across
// all processes. The store keeps the queue and wakes only its head when the key is free.
//
// A call that finds the key busy subscribes, asks once more, and then sleeps until it is notified.
// It also asks at the end of the holder's lease, and at least once in half a TTL, by which it
// keeps its position. The lease of such a call is not handed off inside the process, because that
// would overtake others. So each run costs its two round trips.
//
// A waiter that has died or is frozen delays the queue by less than a second. The queue skips a
// waiter without a live subscriber. If a waiter was notified and does not come, another takes
// over. A waiter that comes back within its TTL, and was not notified, keeps its position. A
// waiter that does not ask for a TTL loses it.
//
// A call that does not wait gets ErrBusy even if the key is free, as long as others are queued.
// Calls without WithFair do not see the queue: they may overtake, and their release is noticed
// late. So give WithFair to New, or to all calls for a key. It does not change which call may hold
// the key, nor for how long.
//
// New, or the call, returns a *SettingError if the backend keeps no queue. backend/memory, single
// and reentrant keep one. Others do not: the nodes of a redlock may each see a different order.
// Defaults to off: only the calls of one Guard are ordered, see WithWait.
func WithFair() Option {
	return func(s *settings) {
		s.note("WithFair", true)
		s.fair = true
	}
}

// WithoutFair switches WithFair of New off for a call.
func WithoutFair() Option {
	return func(s *settings) {
		delete(s.given, "WithFair")
		s.fair = false
	}
}

// WithOnce leaves a done marker for the window after the function has returned nil. Until it
// expires, calls for the key return ErrDone and run nothing. A function that fails leaves no
// marker, so that it can run again. At most ten years. Defaults to 0, no marker.
//
// The window counts from the end of the run, so one as long as the period of a schedule skips
// every second tick. For a schedule, use WithOncePer, or put the date into the key.
func WithOnce(window time.Duration) Option {
	return func(s *settings) {
		delete(s.given, "WithOncePer")
		s.period = 0
		s.span(&s.window, "WithOnce", window)
	}
}

// WithOncePer runs the work at most once per period of a schedule, such as once a day under a cron
// spec for each night. It leaves a done marker as WithOnce does, but the marker counts from the
// start of the run, and ends after nine tenths of the period. So the marker neither outlives a long
// run into the next start, nor reaches a next start that comes early: clocks may differ, or be
// set for summer time, by up to a tenth of the period.
//
// A run that takes longer than nine tenths of the period leaves no marker, as the next start is
// near. A start that finds it still running gets ErrBusy. A run that fails leaves no marker
// either, so that another start in the same period runs the work again.
//
// Of WithOnce and WithOncePer, the last one counts. At most ten years. Defaults to 0, no marker.
func WithOncePer(period time.Duration) Option {
	return func(s *settings) {
		delete(s.given, "WithOnce")
		s.period = period
		s.span(&s.window, "WithOncePer", period)
		s.window -= s.window / periodSlack
	}
}

// WithMinHold keeps the key busy for at least d from the grant, however soon and however the
// function ends. It is for short work that several processes start at nearly the same time, by
// clocks that differ. At most ten years, and at most WithMaxHold. Defaults to 0, none.
func WithMinHold(d time.Duration) Option {
	return func(s *settings) { s.span(&s.minHold, "WithMinHold", d) }
}

// WithMaxHold ends the run's context with ErrLost at d after the grant, and stops renewing the
// lease. A function that hangs thus holds the key for at most d and one TTL. At most ten years.
// Defaults to 0, no limit.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) { s.span(&s.maxHold, "WithMaxHold", d) }
}

// WithoutRenewal does not renew the lease: the run's context ends with ErrLost shortly before the
// TTL has passed, see WithMargin. Defaults to renewal at each third of the TTL.
func WithoutRenewal() Option {
	return func(s *settings) {
		s.note("WithoutRenewal", true)
		s.noRenewal = true
	}
}

// WithRenewal switches WithoutRenewal of New off for a call.
func WithRenewal() Option {
	return func(s *settings) {
		delete(s.given, "WithoutRenewal")
		s.noRenewal = false
	}
}

// WithMargin ends the run's context d before the lease ends. It is for work that ends some time
// after the context: a child process, or a request to a server that does not see the context. The
// Guard itself ends the context only some milliseconds before the lease.
//
// As long as renewals succeed, the margin changes nothing. If they fail, the context ends d
// earlier than it would without the margin, with a *LostError of the reason LossExpired as its
// cause. The lease is then no longer valid for this call (Lease.Valid), although the store still
// has it: the key stays taken for d, or until the run has returned. Calls that share a lease
// (WithShared) each have their own margin.
//
// The margin does not move the end by WithMaxHold: at that time, d is left anyway. It cannot help
// if the lease ends without a warning, as with LossNotHeld and LossSuspended, or if Close revokes
// it.
//
// At most a third of the TTL; New, or the call, returns a *SettingError otherwise. Defaults to 0.
func WithMargin(d time.Duration) Option {
	return func(s *settings) { s.span(&s.margin, "WithMargin", d) }
}

// WithOwner names the party that makes the claim. If the backend keeps owners (backend/reentrant),
// all calls that name the same owner hold the key together, even in several processes, and exclude
// only others. An owner is one thread of work, such as "import of tenant 17", and not a service.
// Other backends ignore the owner. At most 128 bytes. See [CarryOwner] for work that continues in
// another service. Defaults to "": each claim is an owner of its own.
func WithOwner(owner string) Option {
	return func(s *settings) { s.text(&s.owner, "WithOwner", owner, maxName, "\x00") }
}

// WithLabel sets the text by which others see the holder of a busy key (BusyError.Label), or the
// run that has finished (DoneError.Label). The store keeps it. At most 512 bytes; "" is no label.
// If the label exceeds 350 bytes, DoneError may lack a part of the name, or the time.
// Defaults to the host's name and the process ID, such as "web-1 pid 4242".
func WithLabel(label string) Option {
	return func(s *settings) { s.text(&s.label, "WithLabel", label, maxLabel, "\x00") }
}

// WithHook adds a hook. Hooks are called in the order in which they were added. Defaults to none.
func WithHook(h Hook) Option {
	return func(s *settings) {
		s.note("WithHook", true)
		s.hooks = append(s.hooks, h)
	}
}
