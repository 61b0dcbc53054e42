package guard

import (
	"context"
	"errors"
	"fmt"
)

// A Kind is what kept a store from answering. The kinds are few and fixed, fit for a metric.
type Kind string

// The kinds of store errors.
const (
	KindOther         Kind = "other"
	KindTimeout       Kind = "timeout"        // no answer in time; the outcome is unknown
	KindCanceled      Kind = "canceled"       // the call's context was cancelled; the outcome is unknown
	KindConnection    Kind = "connection"     // refused, reset or cut; the outcome may be unknown
	KindPoolExhausted Kind = "pool_exhausted" // no connection was free in time
	KindLimit         Kind = "limit"          // the server takes no more clients
	KindOOM           Kind = "oom"            // the server has no memory left and evicts nothing
	KindReadOnly      Kind = "readonly"       // the server is a replica
	KindLoading       Kind = "loading"        // the server is reading its data
	KindRestarted     Kind = "restarted"      // the server has restarted too short a time ago, and may have forgotten leases
	KindScriptBusy    Kind = "script_busy"    // the server is busy with somebody's script
	KindMoved         Kind = "moved"          // the key's slot is on its way to another node
	KindNoReplicas    Kind = "noreplicas"     // too few replicas have it
	KindQuorum        Kind = "quorum"         // too few nodes have granted it
	KindClosed        Kind = "closed"         // the client was closed
	KindAuth          Kind = "auth"           // wrong password, or no right to the key or command
	KindWrongType     Kind = "wrong_type"     // the key holds something that is not a lease
	KindUnsupported   Kind = "unsupported"    // the server is too old or lacks a command
	KindProtocol      Kind = "protocol"       // the answer made no sense
	KindSettings      Kind = "settings"       // what the store was made from cannot work, as its servers show
)

// Permanent reports whether asking again cannot help until somebody has mended the settings, the
// server or the key. A Guard does not ask again then, not even while it waits.
func (k Kind) Permanent() bool {
	switch k {
	case KindClosed, KindAuth, KindWrongType, KindUnsupported, KindProtocol, KindSettings:
		return true
	default:
		return false
	}
}

// An Op is a call to a store.
type Op string

// The calls to a store.
const (
	OpAcquire Op = "acquire"
	OpRenew   Op = "renew"
	OpRelease Op = "release"
	OpCleanUp Op = "cleanup" // a release, in the background, of what an acquire or a release may have left
	OpLedger  Op = "ledger"  // any of a Ledger's
)

// A StoreError is ErrStore with the details: the store could not be asked, and what became of the
// request is not known.
//
// From Do and Acquire, one of OpAcquire means that the function did not run. One of OpRelease means
// that it did, and that the marker which WithOnce promised may be missing: the Guard goes on trying
// to leave it until the lease would have ended.
type StoreError struct {
	// Store is the backend's name, such as "single".
	Store string
	Op    Op
	Key   string
	// Addr is the server's address where it is known.
	Addr string
	Kind Kind
	// Over, of an acquire, says that the store takes back what it may have granted, in the background: whoever asks
	// again has to do so under another ID, as a Guard does.
	Over bool
	// Err is the store's own error. A context's error is hidden from errors.Is, as it was not the
	// caller's context that ended.
	Err error
}

func (e *StoreError) Error() string {
	store := e.Store
	if store == "" {
		store = "guard"
	}
	at := ""
	if e.Addr != "" {
		at = " at " + e.Addr
	}
	return fmt.Sprintf("%s: %s %q%s: %s: %v", store, e.Op, e.Key, at, e.Kind, e.Err)
}

// Is reports whether target is ErrStore.
func (e *StoreError) Is(target error) bool { return target == ErrStore }

// Unwrap returns the store's own error.
func (e *StoreError) Unwrap() error { return hideContext(e.Err) }

// NewStoreError returns err as a *StoreError of the backend's, of KindTimeout or KindCanceled if it came
// from a context and of KindOther if not.
func NewStoreError(store string, op Op, key string, err error) *StoreError {
	kind := KindOther
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		kind = KindTimeout
	case errors.Is(err, context.Canceled):
		kind = KindCanceled
	}
	return &StoreError{Store: store, Op: op, Key: key, Kind: kind, Err: err}
}

// asStoreError returns what a Locker returned, as a *StoreError if it is none.
func asStoreError(op Op, key string, err error) error {
	var store *StoreError
	if errors.As(err, &store) {
		return err
	}
	return NewStoreError("", op, key, err)
}

// permanent reports whether err says that asking again cannot help.
func permanent(err error) bool {
	var store *StoreError
	return errors.As(err, &store) && store.Kind.Permanent()
}
