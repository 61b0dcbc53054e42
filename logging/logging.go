// Package logging writes what a guard.Guard does to a slog.Logger, with the standard library alone.
//
//	hook, err := logging.New(slog.Default())
//	g, err := guard.New(store, guard.WithHook(hook))
//
// Each event has one constant message, and its details in the group "onerun". A lost lease and a
// panic are errors. What an operator should look at is a warning: a store that does not answer, a
// release that failed, a long wait, work that an adapter refuses because of a mistake in the setup.
// What is usual is at level debug. What goes on failing is logged at the first, second, fourth …
// time, so that a store that is away does not flood the log.
//
// Keys and owners are redacted. The errors of your own functions are not logged.
package logging

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/signals"
)

// DefaultLongWait is after how long a wait is logged unless WithLongWait sets another time.
const DefaultLongWait = 30 * time.Second

// New returns the hook for guard.WithHook. It may be used by several Guards. A setting that cannot
// work is a *guard.SettingError that names it.
//
// With the hook of package tracing, give that one first: records then have its span in their
// context, so that a handler can add the trace ID.
func New(l *slog.Logger, opts ...Option) (guard.Hook, error) {
	set := settings{redact: signals.Redact, longWait: DefaultLongWait}
	if l == nil {
		set.refuse("New", "nil", "needs a slog.Logger")
	}
	for _, opt := range opts {
		if opt == nil {
			set.refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(&set)
	}
	if set.err != nil {
		return guard.Hook{}, set.err
	}
	to := &logger{to: l, redact: signals.NewRedactor(set.redact), longWait: set.longWait}
	return guard.Hook{
		Off:          to.off,
		AcquireStart: to.acquireStart,
		Wait:         to.wait,
		AcquireEnd:   to.acquireEnd,
		Skip:         to.skip,
		RunEnd:       to.runEnd,
		Renew:        to.renew,
		Loss:         to.loss,
		Release:      to.release,
		Call:         to.call,
		Orphan:       to.orphan,
		Warn:         to.warn,
		Outcome:      to.outcome,
	}, nil
}

// An Option is a setting of New. New returns an error if it cannot work.
type Option func(*settings)

type settings struct {
	redact   func(string) string
	longWait time.Duration
	err      error // the first bad setting
}

func (s *settings) refuse(setting string, value any, reason string) {
	if s.err == nil {
		s.err = &guard.SettingError{Setting: "logging." + setting, Value: fmt.Sprint(value), Reason: reason}
	}
}

// WithRedactor sets the function that redacts keys and owners. It is called concurrently. Its
// result is shown as it is, and "" leaves the attribute out.
//
// Defaults to the first eight bytes of the SHA-256 sum, in hexadecimal digits. Equal keys have
// equal results. A reader that can guess a key can check the guess.
func WithRedactor(redact func(string) string) Option {
	return func(s *settings) {
		if redact == nil {
			s.refuse("WithRedactor", "nil", "must not be nil")
			return
		}
		s.redact = redact
	}
}

// WithLongWait sets after how long a wait for a busy key is logged. It is logged again each time
// that it has doubled. Defaults to DefaultLongWait, 30 s.
func WithLongWait(d time.Duration) Option {
	return func(s *settings) {
		if d <= 0 {
			s.refuse("WithLongWait", d, "must be positive")
			return
		}
		s.longWait = d
	}
}
