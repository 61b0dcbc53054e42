package idempotent

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// A Mode says what happens to a call whose key has been seen before.
type Mode uint8

// The modes.
const (
	Replay Mode = iota
	Reject
	Exclusive
)

// The defaults.
const (
	defaultOnce       = 24 * time.Hour
	defaultMaxHold    = 5 * time.Minute
	defaultRetryAfter = time.Second
	defaultWaiters    = 1024
	defaultKeyWaiters = 256
	scopesThatWait    = 4 // that may use up all places together, by default
)

const (
	// longestRetention is the longest window of guard.WithOnce.
	longestRetention = 10 * 365 * 24 * time.Hour
	// maxAnswer is the largest answer, in bytes, that can be recorded. The rest of guard.MaxRecord
	// has room for its headers, twice MaxFieldBytes with their lengths.
	maxAnswer = guard.MaxRecord * 3 / 4
)

// Settings are the settings that both adapters have. The options of the adapters set them.
type Settings struct {
	refused.List
	Adapter Adapter
	// Unreadable returns the adapter's error for a record that cannot be read. err may be nil.
	Unreadable func(reason string, err error) error

	Global     bool
	Optional   bool
	Group      string
	Mode       Mode
	Wait       time.Duration
	Waiters    int
	KeyWaiters int
	// ScopeWaiters is set by WithMaxScopeWaiters, and otherwise 0.
	ScopeWaiters int
	// ScopeRecords is set by WithMaxScopeRecords, and otherwise 0: no bound.
	ScopeRecords int
	NoPrint      bool // there are no fingerprints
	OwnPrint     bool // the user has set what is compared
	MaxAnswer    int
	Rerun        bool
	Retention    time.Duration
	MaxHold      time.Duration
	RetryAfter   time.Duration
	Cancel       bool
	Open         bool
	// AfterRecord holds an answer back until its record is in the store.
	AfterRecord bool
	Shadow      bool
	Patience    time.Duration // how long a call in shadow mode waits for the store
	Origins     []Origin
	Lease       []guard.Option

	sealer *sealer
}

// Defaults returns the default settings of an adapter.
func Defaults(a Adapter, unreadable func(reason string, err error) error) Settings {
	return Settings{
		Adapter:    a,
		Unreadable: unreadable,
		Waiters:    defaultWaiters,
		KeyWaiters: defaultKeyWaiters,
		MaxAnswer:  maxAnswer,
		Retention:  defaultOnce,
		MaxHold:    defaultMaxHold,
		RetryAfter: defaultRetryAfter,
		Patience:   shadowPatience,
	}
}

// SetGroup is WithGroup.
func (s *Settings) SetGroup(name string) {
	if name == "" {
		s.Refuse("WithGroup", nil, "must not be empty")
	}
	s.Group = name
}

// SetMode is WithMode.
func (s *Settings) SetMode(mode Mode) {
	if mode > Exclusive {
		s.Refuse("WithMode", int(mode), "is no mode")
	}
	s.Mode = mode
}

// SetMaxWaiters is WithMaxWaiters.
func (s *Settings) SetMaxWaiters(all, perKey int) {
	if perKey < 1 || all < perKey {
		s.Refuse("WithMaxWaiters", fmt.Sprintf("%d, %d", all, perKey), "must allow one for a key, and in all as many as for a key")
	}
	s.Waiters, s.KeyWaiters = all, perKey
}

// SetMaxScopeWaiters is WithMaxScopeWaiters.
func (s *Settings) SetMaxScopeWaiters(n int) {
	if n < 1 {
		s.Refuse("WithMaxScopeWaiters", n, "must be positive")
		return
	}
	s.ScopeWaiters = n
}

// SetMaxScopeRecords is WithMaxScopeRecords.
func (s *Settings) SetMaxScopeRecords(n int) {
	if n < 1 || n > maxScopeRecords {
		s.Refuse("WithMaxScopeRecords", n, fmt.Sprintf("must be from 1 to %d", maxScopeRecords))
		return
	}
	s.ScopeRecords = n
}

// scopeWaiters returns how many calls of a scope may wait. All calls with keys that are global are
// of one scope.
func (s *Settings) scopeWaiters() int {
	switch {
	case s.Global:
		return s.Waiters
	case s.ScopeWaiters > 0:
		return s.ScopeWaiters
	}
	return max(s.KeyWaiters, s.Waiters/scopesThatWait)
}

// SetMaxAnswer is WithMaxAnswer.
func (s *Settings) SetMaxAnswer(bytes int) {
	if bytes < 0 || bytes > maxAnswer {
		s.Refuse("WithMaxAnswer", bytes, fmt.Sprintf("must be from 0 to %d", maxAnswer))
	}
	s.MaxAnswer = bytes
}

// SetOnce is WithOnce.
func (s *Settings) SetOnce(d time.Duration) {
	if d > longestRetention {
		s.Refuse("WithOnce", d, "must be at most ten years")
		return
	}
	s.Positive(&s.Retention, "WithOnce", d)
}

// SetEncryption is WithEncryption.
func (s *Settings) SetEncryption(keys []EncryptionKey) {
	sealer, err := newSealer(keys)
	s.sealer, s.Err = sealer, errors.Join(s.Err, err)
}

// Check looks at settings that have to fit each other.
func (s *Settings) Check(g *guard.Guard, hasKey, hasScope bool) {
	if g == nil {
		s.Refuse("guard", nil, "must not be nil")
	}
	if !hasKey {
		s.Refuse("key", nil, "must not be nil")
	}
	switch {
	case !hasScope && !s.Global:
		s.Refuse("WithScope", nil, "is needed, so that nobody gets the answer of somebody else; WithGlobalKeys says that keys are the same for all")
	case hasScope && s.Global:
		s.Refuse("WithGlobalKeys", nil, "and WithScope exclude each other")
	}
	if s.ScopeWaiters > 0 && s.Global {
		s.Refuse("WithMaxScopeWaiters", s.ScopeWaiters, "has no effect with WithGlobalKeys: there are no scopes")
	}
	if s.ScopeWaiters > s.Waiters {
		s.Refuse("WithMaxScopeWaiters", s.ScopeWaiters, fmt.Sprintf("must be at most the %d that wait in all (WithMaxWaiters)", s.Waiters))
	}
	if s.ScopeRecords > 0 && s.Global {
		s.Refuse("WithMaxScopeRecords", s.ScopeRecords, "has no effect with WithGlobalKeys: there are no scopes")
	}
	if s.ScopeRecords > 0 && s.Mode == Exclusive {
		s.Refuse("WithMaxScopeRecords", s.ScopeRecords, "has no effect in Exclusive mode, which keeps nothing")
	}
	if s.Mode == Exclusive && s.OwnPrint {
		s.Refuse("WithFingerprint", nil, "has no effect in Exclusive mode, which remembers nothing")
	}
	if s.Mode == Exclusive && s.sealer != nil {
		s.Refuse("WithEncryption", nil, "has no effect in Exclusive mode, which keeps nothing")
	}
	if s.Mode == Exclusive && s.AfterRecord {
		s.Refuse("WithAnswerAfterRecord", nil, "has no effect in Exclusive mode, which keeps nothing")
	}
	if s.Open && s.AfterRecord {
		s.Refuse("WithAnswerAfterRecord", nil, "and WithFailOpen exclude each other: a run without a lease leaves no record")
	}
}

// unused returns the options of leases that the middleware cannot honor, and why.
func (s *Settings) unused() map[string]string {
	const owner = "cannot be that of all calls: they would hold their keys together"
	unused := map[string]string{
		"WithWait":      "has no effect here: WithWait of " + s.Adapter.Package() + " sets how long a call waits",
		"WithOnce":      "has no effect here: WithOnce of " + s.Adapter.Package() + " sets how long a key is remembered",
		"WithOwner":     owner,
		"WithOwnerFrom": owner,
	}
	if s.Mode != Exclusive {
		const alone = "is for Exclusive mode: in the others, an answer is of one run (WithOnce)"
		unused["WithLimit"], unused["WithShared"] = alone, alone
	}
	return unused
}

// Prints reports whether calls have fingerprints.
func (s *Settings) Prints() bool {
	return s.OwnPrint || s.Mode == Replay && !s.NoPrint
}

// Records returns how many bytes of an answer are recorded, or -1 if no answer is.
func (s *Settings) Records() int {
	if s.Mode == Replay {
		return s.MaxAnswer
	}
	return -1
}
