package driver

import (
	"context"
	"errors"
	"fmt"
)

// ErrStore means that the store could not be asked, so the function did not run. See StoreError.
var ErrStore = errors.New("store could not be asked")

// An Op is a call to a store.
type Op string

// The calls to a store.
const (
	OpAcquire Op = "acquire"
	OpRenew   Op = "renew"
	OpRelease Op = "release"
	OpCleanUp Op = "cleanup" // a release in the background of a claim with an unknown outcome
	OpLedger  Op = "ledger"  // any call of a Ledger
	OpInspect Op = "inspect" // any call of an Inspector
)

// A StoreErrorKind is the reason why a store did not answer. The kinds are few and fixed, so they
// can be a label of a metric.
type StoreErrorKind string

// The kinds of store errors. After KindTimeout and KindCanceled the outcome is unknown; after
// KindConnection it may be.
const (
	KindOther         StoreErrorKind = "other"
	KindTimeout       StoreErrorKind = "timeout"        // no answer in time
	KindCanceled      StoreErrorKind = "canceled"       // the call's context was cancelled
	KindConnection    StoreErrorKind = "connection"     // refused, reset or cut
	KindPoolExhausted StoreErrorKind = "pool_exhausted" // no connection was free in time
	KindLimit         StoreErrorKind = "limit"          // the server accepts no more clients
	KindOOM           StoreErrorKind = "oom"            // out of memory, and nothing is evicted
	KindNotPersisted  StoreErrorKind = "not_persisted"  // the server cannot write to its disk
	KindReadOnly      StoreErrorKind = "readonly"       // the server is a replica
	KindLoading       StoreErrorKind = "loading"        // the server is loading its data
	KindRestarted     StoreErrorKind = "restarted"      // it may have forgotten leases
	KindScriptBusy    StoreErrorKind = "script_busy"    // busy with another client's script
	KindMoved         StoreErrorKind = "moved"          // the key's slot is moving
	KindNoReplicas    StoreErrorKind = "noreplicas"     // too few replicas have it
	KindQuorum        StoreErrorKind = "quorum"         // too few nodes have granted it
	KindClosed        StoreErrorKind = "closed"         // the client was closed
	KindAuth          StoreErrorKind = "auth"           // wrong password, or missing rights
	KindWrongType     StoreErrorKind = "wrong_type"     // the key holds something else
	KindUnsupported   StoreErrorKind = "unsupported"    // too old, or lacks a command
	KindProtocol      StoreErrorKind = "protocol"       // the answer made no sense
	KindSettings      StoreErrorKind = "settings"       // the backend's settings cannot work
)

// Permanent reports whether asking again cannot help until somebody has fixed the settings, the
// server or the key. A Guard does not ask again then, not even while it waits.
func (k StoreErrorKind) Permanent() bool {
	switch k {
	case KindClosed, KindAuth, KindWrongType, KindUnsupported, KindProtocol, KindSettings:
		return true
	default:
		return false
	}
}

// A StoreError is ErrStore with the details: the store could not be asked, and the outcome of the
// request is unknown.
type StoreError struct {
	// Backend is the backend's name, such as "single".
	Backend string
	Op      Op
	Key     string
	// Addr is the server's address, if it is known.
	Addr string
	Kind StoreErrorKind
	// Revoked, of an acquire, means that the backend itself revokes in the background what it may
	// have granted. A caller that asks again must use another ID. A Guard does so.
	Revoked bool
	// Err is the store's own error. If it is a context's error, errors.Is does not find it: it was
	// not the caller's context that ended.
	Err error
}

func (e *StoreError) Error() string {
	backend, at := e.Backend, ""
	if backend == "" {
		backend = "guard"
	}
	if e.Addr != "" {
		at = " at " + e.Addr
	}
	return fmt.Sprintf("%s: %s %q%s: %s: %v", backend, e.Op, e.Key, at, e.Kind, e.Err)
}

// Is reports whether target is ErrStore.
func (e *StoreError) Is(target error) bool { return target == ErrStore }

// Unwrap returns the store's own error.
func (e *StoreError) Unwrap() error { return HideContext(e.Err) }

// Ran reports whether the lease was held before the call failed. It is false for the errors of Do
// and Acquire, which have OpAcquire: the function did not run.
func (e *StoreError) Ran() bool { return e.Op == OpRelease }

// NewStoreError returns err as a *StoreError of the backend. Its kind is KindTimeout or
// KindCanceled if err came from a context, and KindOther otherwise.
func NewStoreError(backend string, op Op, key string, err error) *StoreError {
	kind := KindOther
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		kind = KindTimeout
	case errors.Is(err, context.Canceled):
		kind = KindCanceled
	}
	return &StoreError{Backend: backend, Op: op, Key: key, Kind: kind, Err: err}
}

// A SettingError is a setting that cannot work, such as the value of an option. Nothing was done.
type SettingError struct {
	// Setting is the option or argument: "WithTTL", "fn".
	Setting string
	// Value is what it was set to, printed. It is empty if there is nothing to print.
	Value  string
	Reason string
}

func (e *SettingError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("guard: %s: %s", e.Setting, e.Reason)
	}
	return fmt.Sprintf("guard: %s(%s): %s", e.Setting, e.Value, e.Reason)
}

// Ran returns false: the function did not run.
func (e *SettingError) Ran() bool { return false }

// HideContext returns err such that errors.Is does not find a context's error in it. A context of
// our own, such as the deadline of one call, must not pass for the caller's context.
func HideContext(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return notContext{err}
	}
	return err
}

type notContext struct{ err error }

func (e notContext) Error() string { return e.err.Error() }

func (e notContext) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.err, target)
}

func (e notContext) As(target any) bool { return errors.As(e.err, target) }
