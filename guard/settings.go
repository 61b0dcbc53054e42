package guard

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	maxSpan = 10 * 365 * 24 * time.Hour
	// marginShare is the part of a TTL that WithMargin may take at most. The first renewal is due
	// at a third of the TTL, so a third is left to repeat a renewal that fails.
	marginShare = 3
)

// An Option is a setting for all calls of a Guard, if it is given to New, or for one call. An
// option of a call replaces that of New, except for WithHook, which adds a hook. The zero value of
// an option means "off", so a call can switch off what New has set. WithoutFair and WithRenewal
// switch off the options that have no value.
type Option func(*settings)

// settings are the result of all options. They do not change once they were checked, so calls
// without options share those of New.
type settings struct {
	name, namespace, owner, label string

	ttl, wait, minHold, maxHold, margin time.Duration

	maxHolders      int // how many may hold the key; 0 and 1 are one alone
	noRenewal, fair bool
	detached        bool // see Adapter.Detached
	marking
	purpose  Purpose
	probe    bool // the adapter handles ErrBusy itself, see Adapter.Probe
	hooks    []Hook
	deferral *Deferral       // see Adapter.Defer; or nil
	given    map[string]bool // by the name of an option that was given: it is not "off"; or nil
	err      *SettingError   // the first bad setting
}

// marking says what done marker a run leaves: none if the window is 0.
type marking struct {
	window time.Duration
	period time.Duration // of WithOncePer: the window counts from the start of the run; or 0
}

// runContext returns the parent of the context of a run, for the context of the caller.
func (s *settings) runContext(caller context.Context) context.Context {
	if s.detached {
		return context.WithoutCancel(caller)
	}
	return caller
}

func (s *settings) refuse(setting string, value any, reason string) {
	if s.err == nil {
		s.err = &SettingError{Setting: setting, Value: fmt.Sprint(value), Reason: reason}
	}
}

// note notes that an option was given, for Adapter.Check.
func (s *settings) note(option string, on bool) {
	if s.given != nil {
		s.given[option] = on
	}
}

// span takes a duration that must end some day. 0 is off.
func (s *settings) span(dst *time.Duration, setting string, d time.Duration) {
	s.note(setting, d != 0)
	switch {
	case d < 0:
		s.refuse(setting, d, "must not be negative")
	case d > maxSpan:
		s.refuse(setting, d, "must end within ten years")
	default:
		*dst = d
	}
}

// text takes a string that must be short and printable. "" is off.
func (s *settings) text(dst *string, setting, v string, longest int, forbidden string) {
	s.note(setting, v != "")
	switch {
	case len(v) > longest:
		s.refuse(setting, fmt.Sprintf("%.32q…", v), fmt.Sprintf("must not be longer than %d bytes", longest))
	case strings.ContainsAny(v, forbidden):
		s.refuse(setting, fmt.Sprintf("%q", v), fmt.Sprintf("must not contain any of %q", forbidden))
	default:
		*dst = v
	}
}

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
	if most := s.ttl / marginShare; s.margin > most {
		s.refuse("WithMargin", s.margin, fmt.Sprintf("must be at most %v, a third of WithTTL(%v)", most, s.ttl))
	}
	if s.maxHolders > 1 && s.window > 0 {
		s.refuse(s.onceOption(), s.window, "must be 0 for a key that several hold (WithShared, WithLimit): a done marker is of work that runs alone")
	}
	if s.err != nil {
		return s, s.err
	}
	return s, nil
}

// stored returns the key by which the store knows a key, which check has accepted. Without a
// namespace, a key that begins with one is a *KeyError: it would be a key of another Guard.
func (s *settings) stored(key string, check func(stored string) error) (string, error) {
	if s.namespace != "" {
		key = driver.JoinNamespace(s.namespace, key)
	} else if namespace, _ := driver.SplitNamespace(key); namespace != "" {
		return "", &KeyError{Key: key, Reason: fmt.Sprintf("begins with a namespace: use WithNamespace(%q), or another key", namespace)}
	}
	return key, check(key)
}

func (m marking) onceOption() string {
	if m.period != 0 {
		return "WithOncePer"
	}
	return "WithOnce"
}

// lasts returns how long a done marker lasts that is left at an instant by a run whose lease was
// granted at another, or 0 if there is to be none.
func (m marking) lasts(granted, at time.Duration) time.Duration {
	if m.period != 0 {
		return max(0, granted+m.window-at)
	}
	return m.window
}

// joins reports whether calls with these settings share a lease of the store with one another.
func (s *settings) joins() bool {
	return s.maxHolders == driver.Unlimited && !s.fair && !s.noRenewal && s.minHold == 0 && s.owner == ""
}

func (s *settings) sharingOption() string {
	if s.maxHolders == driver.Unlimited {
		return "WithShared"
	}
	return fmt.Sprintf("WithLimit(%d)", s.maxHolders)
}

func (s *settings) on() *settings {
	on := hooks(s.hooks).on()
	if len(on) == len(s.hooks) {
		return s
	}
	own := *s
	own.hooks = on
	return &own
}
