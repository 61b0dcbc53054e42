package guard

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The ways in which a call can end without the function's own result are different things to
// errors.Is: these five, and the caller's own context.Canceled or context.DeadlineExceeded. The first
// four have a typed form for errors.As, with the details. They are the causes of the contexts that
// a Guard ends, too (context.Cause).
var (
	// ErrBusy says that another owner holds the key, so the function did not run. See BusyError.
	ErrBusy = errors.New("key is busy")
	// ErrDone says that the key's work has finished before and its marker still stands, so the
	// function did not run. See DoneError.
	ErrDone = errors.New("key is done")
	// ErrLost says that the lease ended while the function ran. See LostError.
	ErrLost = errors.New("lease was lost")
	// ErrClosed says that the Guard was closed. See ClosedError.
	ErrClosed = errors.New("guard is closed")
	// ErrStore says that the store could not be asked. See StoreError.
	ErrStore = errors.New("store could not be asked")

	// ErrReleased is the cause with which a run's context ends after the lease was given back. Only
	// goroutines that outlive their function see it.
	ErrReleased = errors.New("lease was released")
)

// A BusyError is ErrBusy with the details.
type BusyError struct {
	Key string
	// Left is the time until the holder's lease ends if it is not renewed; negative if the store
	// cannot tell.
	Left time.Duration
	// Label is the holder's, see WithLabel. It comes from the store: treat it as untrusted.
	Label string
	// Waited is how long the call has waited for its turn.
	Waited time.Duration
}

func (e *BusyError) Error() string {
	s := fmt.Sprintf("guard: %q is busy", e.Key)
	if e.Label != "" {
		s += fmt.Sprintf(", held by %q", e.Label)
	}
	if e.Left >= 0 {
		s += fmt.Sprintf(", for up to %v", e.Left.Round(time.Millisecond))
	}
	if e.Waited > 0 {
		s += fmt.Sprintf(" (waited %v)", e.Waited.Round(time.Millisecond))
	}
	return s
}

// Is reports whether target is ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// A DoneError is ErrDone with the details.
type DoneError struct {
	Key string
	// Left is the time until the marker goes; negative if the store cannot tell.
	Left time.Duration
	// Record is what the finished run left, see Lease.SetRecord. It comes from the store: treat it as untrusted. It is at most
	// MaxRecord bytes long; a longer one, which only somebody else can have written, comes as an empty one.
	Record []byte
	// Label is that of the run that finished, see WithLabel. It comes from the store: treat it as untrusted.
	Label string
}

func (e *DoneError) Error() string { return fmt.Sprintf("guard: %q is done", e.Key) }

// Is reports whether target is ErrDone.
func (e *DoneError) Is(target error) bool { return target == ErrDone }

// A LossReason says how a lease was lost. The reasons are few and fixed, fit for a metric.
type LossReason string

const (
	// LossExpired is a lease that could not be renewed in time, or must not be (WithoutRenewal).
	LossExpired LossReason = "expired"
	// LossNotHeld is a lease that the store no longer knows: deleted, flushed, or another's by now.
	LossNotHeld LossReason = "not_held"
	// LossSuspended is a lease that was held while the host was suspended.
	LossSuspended LossReason = "suspended"
	// LossMaxHold is a lease that was held for as long as WithMaxHold allows.
	LossMaxHold LossReason = "max_hold"
	// LossReleased is a lease that a run had joined and that was given back before the run ended.
	LossReleased LossReason = "released"
)

// A LostError is ErrLost with the details. If the function returned an error of its own, errors.Is
// and errors.As find that too.
type LostError struct {
	Key    string
	Fence  uint64
	Reason LossReason
	// Late is by how much the run's context ended after the moment at which it should have.
	Late time.Duration
	// Renew is why the last renewal failed, or nil. It is not part of the error's tree.
	Renew error
	// Err is what the function returned, or nil.
	Err error
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("guard: lease on %q was lost: %s", e.Key, e.Reason)
	if e.Renew != nil {
		s += fmt.Sprintf(" (last renewal: %v)", e.Renew)
	}
	if e.Err != nil {
		s += fmt.Sprintf("; the function returned: %v", e.Err)
	}
	return s
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the function's own error.
func (e *LostError) Unwrap() error { return e.Err }

// A ClosedError is ErrClosed with the details.
type ClosedError struct {
	Key string
	// Err is what the function returned if Close took its lease away while it ran, or nil.
	Err error
}

func (e *ClosedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("guard: %q: guard is closed; the function returned: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("guard: %q: guard is closed", e.Key)
}

// Is reports whether target is ErrClosed.
func (e *ClosedError) Is(target error) bool { return target == ErrClosed }

// Unwrap returns the function's own error.
func (e *ClosedError) Unwrap() error { return e.Err }

// A SettingError is a setting that cannot work, such as an option's value. Nothing was done.
type SettingError struct {
	// Setting is the option or argument: "WithTTL", "fn".
	Setting string
	// Value is what it was set to, printed; empty where there is nothing to print.
	Value  string
	Reason string
}

func (e *SettingError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("guard: %s: %s", e.Setting, e.Reason)
	}
	return fmt.Sprintf("guard: %s(%s): %s", e.Setting, e.Value, e.Reason)
}

// A KeyError is a key that cannot be used. Nothing was done.
type KeyError struct {
	// Key is the key, cut short if it is too long.
	Key    string
	Reason string
}

func (e *KeyError) Error() string { return fmt.Sprintf("guard: key %q %s", e.Key, e.Reason) }

// contextEnded returns the error of a call whose caller's context has ended: its cause, and what
// ctx.Err says as well where the cause hides it.
func contextEnded(ctx context.Context, op Op, key string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("guard: %s %q: %w", op, key, cause)
	}
	return fmt.Errorf("guard: %s %q: %w: %w", op, key, err, cause)
}

// notContext hides from errors.Is that err has to do with a context. It wraps the errors that have
// come from contexts of our own making, which must not pass for the caller's.
type notContext struct{ err error }

func (e notContext) Error() string { return e.err.Error() }

func (e notContext) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.err, target)
}

func (e notContext) As(target any) bool { return errors.As(e.err, target) }

// hideContext wraps err in notContext if it needs it.
func hideContext(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return notContext{err}
	}
	return err
}
