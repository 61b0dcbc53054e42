// Package refused collects the settings of a middleware that cannot work, so that all of them come
// in one error.
package refused

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A List is what was refused. The zero List is empty.
type List struct {
	Err error // of *guard.SettingError
}

// Refuse notes that an option cannot work. The value is nil where there is nothing to print.
func (l *List) Refuse(option string, value any, reason string) {
	l.Err = errors.Join(l.Err, Setting(option, value, reason))
}

// Setting returns the *guard.SettingError for one that cannot work.
func Setting(option string, value any, reason string) error {
	text := ""
	if value != nil {
		text = fmt.Sprint(value)
	}
	return &guard.SettingError{Setting: option, Value: text, Reason: reason}
}

// Positive sets a duration that has to be positive.
func (l *List) Positive(to *time.Duration, option string, d time.Duration) {
	if d <= 0 {
		l.Refuse(option, d, "must be positive")
		return
	}
	*to = d
}

// NotNegative sets a duration that must not be negative. 0 is off.
func (l *List) NotNegative(to *time.Duration, option string, d time.Duration) {
	if d < 0 {
		l.Refuse(option, d, "must not be negative")
		return
	}
	*to = d
}

// Between sets a number that has bounds.
func (l *List) Between(to *int, option string, n, from, upTo int) {
	if n < from || n > upTo {
		l.Refuse(option, n, fmt.Sprintf("must be from %d to %d", from, upTo))
		return
	}
	*to = n
}

// Apply applies options to settings. One that is nil is refused.
func Apply[S any, O ~func(*S)](l *List, s *S, opts []O) {
	for _, opt := range opts {
		if opt == nil {
			l.Refuse("Option", nil, "must not be nil")
			continue
		}
		opt(s)
	}
}
