package idempotent

import (
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// An Adapter is a package that adapts a transport. Reports have its name, which is also the default
// name of the work.
type Adapter string

// The adapters.
const (
	HTTP Adapter = "http"
	GRPC Adapter = "grpc"
)

// Package returns the name of the adapter's package, with which its errors begin.
func (a Adapter) Package() string { return "guard" + string(a) }

// scopesThatWait is how many scopes may use up all places for waiters together, by default.
const scopesThatWait = 4

// Settings are the settings of a middleware, as far as they do not depend on the transport.
type Settings struct {
	idempotency.Settings
	Adapter Adapter

	NoPrint  bool          // there are no fingerprints
	OwnPrint bool          // the user has set what is compared
	Patience time.Duration // how long a call in shadow mode waits for the store

	// New sets what follows from the others:
	Prints  bool // calls have fingerprints
	Records int  // bytes of an answer that are recorded, or -1 if no answer is
}

// Defaults returns the default settings of an adapter.
func Defaults(a Adapter) Settings {
	return Settings{Settings: idempotency.Defaults(), Adapter: a, Patience: shadowPatience}
}

// Apply applies options to settings: those of the adapter, of type O, to own, and those of the
// package idempotency to s. Any other is refused.
func Apply[O ~func(*S), S, Option any](s *Settings, own *S, opts []Option) {
	for _, opt := range opts {
		switch opt := any(opt).(type) {
		case O:
			if opt != nil {
				opt(own)
				continue
			}
		case idempotency.Option:
			if opt != nil {
				opt(&s.Settings)
				continue
			}
		}
		s.Refuse("Option", nil, "must not be nil, nor of another package")
	}
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
	if s.ScopeRecords > 0 && s.Mode == idempotency.Exclusive {
		s.Refuse("WithMaxScopeRecords", s.ScopeRecords, "has no effect in Exclusive mode, which keeps nothing")
	}
	if s.Mode == idempotency.Exclusive && s.OwnPrint {
		s.Refuse("WithFingerprint", nil, "has no effect in Exclusive mode, which remembers nothing")
	}
	if s.Mode == idempotency.Exclusive && len(s.Encryption) > 0 {
		s.Refuse("WithEncryption", nil, "has no effect in Exclusive mode, which keeps nothing")
	}
	if s.Mode == idempotency.Exclusive && s.AfterRecord {
		s.Refuse("WithAnswerAfterRecord", nil, "has no effect in Exclusive mode, which keeps nothing")
	}
	if s.FailOpen && s.AfterRecord {
		s.Refuse("WithAnswerAfterRecord", nil, "and WithFailOpen exclude each other: a run without a lease leaves no record")
	}
}

// unused returns the options of leases that the middleware cannot honor, and why.
func (s *Settings) unused() map[string]string {
	const owner = "cannot be that of all calls: they would hold their keys together"
	unused := map[string]string{
		"WithWait":      "has no effect here: idempotency.WithWait sets how long a call waits",
		"WithOnce":      "has no effect here: idempotency.WithOnce sets how long a key is remembered",
		"WithOwner":     owner,
		"WithOwnerFrom": owner,
	}
	if s.Mode != idempotency.Exclusive {
		const alone = "is for Exclusive mode: in the others, an answer is of one run (WithOnce)"
		unused["WithLimit"], unused["WithShared"] = alone, alone
	}
	return unused
}
