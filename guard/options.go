package guard

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Defaults and bounds of the settings.
const (
	// DefaultTTL is a lease's TTL where WithTTL says none.
	DefaultTTL = 30 * time.Second
	// MinTTL is the shortest TTL. Under it the margin that is kept for drifting clocks and late
	// timers would be most of the lease.
	MinTTL = 100 * time.Millisecond
	// Forever, given to WithWait, waits until the context ends.
	Forever = time.Duration(math.MaxInt64)

	maxSpan  = 10 * 365 * 24 * time.Hour
	maxLabel = 512
	maxName  = 128
)

// An Option is a setting for all calls of a Guard, if it is given to New, or for one call. For one
// call it goes before what New was told, but for WithHook, which adds.
type Option func(*settings)

// settings are what the options come to. Nothing changes them after check, so calls without options share those of New.
type settings struct {
	name, namespace, owner, label string

	ttl, wait, window, minHold, maxHold time.Duration

	noRenewal, aside, probe, fair bool
	hooks                         []Hook
	err                           *SettingError // the first bad setting
}

// refuse keeps the first bad setting.
func (s *settings) refuse(setting string, value any, reason string) {
	if s.err == nil {
		s.err = &SettingError{Setting: setting, Value: fmt.Sprint(value), Reason: reason}
	}
}

// span takes a duration that must be positive and end some day.
func (s *settings) span(dst *time.Duration, setting string, d time.Duration) {
	switch {
	case d <= 0:
		s.refuse(setting, d, "must be positive")
	case d > maxSpan:
		s.refuse(setting, d, "must end within ten years")
	default:
		*dst = d
	}
}

// text takes a string that must be short and fit to print.
func (s *settings) text(dst *string, setting, v string, longest int, forbidden string) {
	switch {
	case v == "":
		s.refuse(setting, `""`, "must not be empty")
	case len(v) > longest:
		s.refuse(setting, fmt.Sprintf("%.32q…", v), fmt.Sprintf("must not be longer than %d bytes", longest))
	case strings.ContainsAny(v, forbidden):
		s.refuse(setting, fmt.Sprintf("%q", v), fmt.Sprintf("must not have any of %q in it", forbidden))
	default:
		*dst = v
	}
}

// with returns s with the options applied and checked.
func (s *settings) with(opts []Option) (*settings, error) {
	if len(opts) == 0 {
		return s, nil
	}
	own := *s
	s = &own
	s.hooks = s.hooks[:len(s.hooks):len(s.hooks)]
	for _, opt := range opts {
		if opt == nil {
			s.refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(s)
	}
	if s.minHold > 0 && s.maxHold > 0 && s.minHold > s.maxHold {
		s.refuse("WithMinHold", s.minHold, fmt.Sprintf("must not be longer than WithMaxHold(%v)", s.maxHold))
	}
	if s.err != nil {
		return s, s.err
	}
	return s, nil
}

// on returns s without the hooks that are off.
func (s *settings) on() *settings {
	on := hooks(s.hooks).on()
	if len(on) == len(s.hooks) {
		return s
	}
	own := *s
	own.hooks = on
	return &own
}

// WithName says what kind of work it is, such as "nightly-report": a name that is one of few, as
// hooks, spans and metrics go by it. A key, which may be one of millions and may hold personal data, is
// not a name. At most 128 bytes. Default: no name.
func WithName(name string) Option {
	return func(s *settings) { s.text(&s.name, "WithName", name, maxName, "\x00") }
}

// WithNamespace puts "namespace:" before every key, so that several applications can share a
// store. It must not have a colon, a brace or a NUL byte in it, and is at most 128 bytes long.
// Default: none.
func WithNamespace(namespace string) Option {
	return func(s *settings) { s.text(&s.namespace, "WithNamespace", namespace, maxName, ":{}\x00") }
}

// WithTTL sets how long a lease lasts unless it is renewed, which is done at each third of it: the time
// for which the key stays taken after the process that held it has died. It has nothing to do with
// how long the work takes. At least MinTTL. Default: DefaultTTL, 30 s.
func WithTTL(ttl time.Duration) Option {
	return func(s *settings) {
		if ttl < MinTTL {
			s.refuse("WithTTL", ttl, fmt.Sprintf("must be at least %v", MinTTL))
			return
		}
		s.span(&s.ttl, "WithTTL", ttl)
	}
}

// WithWait lets a call wait up to d for a key that is busy, in place of returning ErrBusy at once. It
// waits through passing errors of the store as well. Forever waits until the context ends; 0 does
// not wait. Calls of one Guard that wait for a key, and name no owner or the same, are served in the order in which they came; one that does not wait asks at
// once, whoever waits. WithFair does that across processes. Default: 0.
func WithWait(d time.Duration) Option {
	return func(s *settings) {
		if d < 0 {
			s.refuse("WithWait", d, "must not be negative")
			return
		}
		s.wait = d
	}
}

// WithOnce leaves a marker for the window after the function returned nil: until it goes, calls for
// the key return ErrDone and run nothing. A function that fails leaves none, so that it can be run
// again. The window is counted from the end of the run, and must end within ten years. Default: no marker.
func WithOnce(window time.Duration) Option {
	return func(s *settings) { s.span(&s.window, "WithOnce", window) }
}

// WithMinHold keeps the key busy for at least d from when the lease was granted, however soon and
// however the function ends: for short work that several processes start at nearly the same time, by
// clocks that differ. Default: none.
func WithMinHold(d time.Duration) Option {
	return func(s *settings) { s.span(&s.minHold, "WithMinHold", d) }
}

// WithMaxHold ends the run's context with ErrLost after d, counted from when the lease was granted, and
// stops its renewal, so that a function which hangs holds the key for at most d and one TTL.
// Default: none.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) { s.span(&s.maxHold, "WithMaxHold", d) }
}

// WithoutRenewal does not renew the lease: the run's context ends with ErrLost shortly before the TTL
// has passed.
func WithoutRenewal() Option { return func(s *settings) { s.noRenewal = true } }

// WithOwner names who claims. Where the store keeps owners (backend/reentrant), all who name the
// same owner hold the key together, also in several processes, and keep nobody out but others: an owner is one
// thread of work, such as "import of tenant 17", and not a service. Elsewhere it changes nothing. At most
// 128 bytes. Default: each claim is an owner of its own. See CarryOwner for work that goes on in another service.
func WithOwner(owner string) Option {
	return func(s *settings) { s.text(&s.owner, "WithOwner", owner, maxName, "\x00") }
}

// WithLabel says who holds the key, to those who find it busy (BusyError.Label), or who did the work, to
// those who find it done (DoneError.Label). It is kept in the store. At most 512 bytes. Default: the host's name and the process's number, "web-1 pid 4242".
func WithLabel(label string) Option {
	return func(s *settings) { s.text(&s.label, "WithLabel", label, maxLabel, "\x00") }
}

// WithAside says that the lease is one of an adapter's own, beside that under which the work runs, such as one that keeps others from looking for
// missed ticks at the same time: hooks are told so (Event.Aside), so that what they count as runs, skips and leases is the work.
func WithAside() Option { return func(s *settings) { s.aside = true } }

// WithProbe says that the caller will see to it if the key is busy, by another call or otherwise: hooks are then not told that the run was skipped. It is for
// adapters, which tell them by Report in the end.
func WithProbe() Option { return func(s *settings) { s.probe = true } }

// WithHook adds a hook. Hooks are called in the order in which they were added.
func WithHook(h Hook) Option { return func(s *settings) { s.hooks = append(s.hooks, h) } }
