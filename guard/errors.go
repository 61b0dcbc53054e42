package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// The errors of Do, and what they mean. errors.Is distinguishes all of them from one another, and
// from the caller's own context.Canceled and context.DeadlineExceeded. Each typed error has a
// method Ran, and the function Ran works for every error.
//
//	error      typed form     the function  meaning
//	ErrBusy    *BusyError     did not run   another owner holds the key
//	ErrDone    *DoneError     did not run   the work for the key has finished before
//	ErrStore   *StoreError    did not run   the store could not be asked
//	ErrLost    *LostError     see Ran       ran, and the lease ended meanwhile;
//	                                        or ctx holds the key under a lease that is lost
//	ErrClosed  *ClosedError   see Ran       ran, and Close revoked the lease; or was refused
//	ErrMarker  *MarkerError   ran           returned nil, but its done marker may be missing
//	ErrUpgrade *UpgradeError  did not run   ctx holds the key together with others
//	           *KeyError      did not run   the key cannot be used
//	           *SettingError  did not run   an option cannot work
//	ctx.Err()                 did not run   the caller's context ended first
//	other                     ran           the function's own error
var (
	// ErrBusy means that another owner holds the key, so the function did not run. See BusyError.
	ErrBusy = errors.New("key is busy")
	// ErrDone means that the work for the key has finished before and that its marker still
	// exists, so the function did not run. See DoneError.
	ErrDone = errors.New("key is done")
	// ErrLost means that the lease ended while the function ran. See LostError.
	ErrLost = errors.New("lease was lost")
	// ErrClosed means that the Guard was closed. See ClosedError.
	ErrClosed = errors.New("guard is closed")
	// ErrStore means that the store could not be asked, so the function did not run. See
	// StoreError.
	ErrStore = driver.ErrStore
	// ErrMarker means that the function ran and returned nil, but that its done marker may be
	// missing. See MarkerError.
	ErrMarker = errors.New("done marker may be missing")

	// ErrReleased is the cause with which a run's context ends after the lease was released. Only
	// goroutines that outlive their function see it.
	ErrReleased = errors.New("lease was released")
)

// A BusyError is ErrBusy with the details.
type BusyError struct {
	Key string
	// Left is the time until the holder's lease ends if it is not renewed. It is negative if the
	// store cannot tell.
	Left time.Duration
	// Label identifies the holder, see WithLabel. It comes from the store: treat it as untrusted.
	Label string
	// Foreign means that another program or library holds the key, such as Redisson. Its Label is
	// what the store shows of it, or "".
	Foreign bool
	// Waited is how long the call has waited for the key.
	Waited time.Duration
}

func (e *BusyError) Error() string {
	s := fmt.Sprintf("guard: %q is busy", e.Key)
	if e.Foreign {
		s += ", held by another library"
	}
	switch {
	case e.Foreign && e.Label != "":
		s += fmt.Sprintf(" as %q", e.Label)
	case e.Label != "":
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

// Ran returns false: the function did not run.
func (e *BusyError) Ran() bool { return false }

// A DoneError is ErrDone with the details.
type DoneError struct {
	Key string
	// Left is the time until the marker expires. It is negative if the store cannot tell.
	Left time.Duration
	// Record is the record that the finished run left, see Lease.SetRecord. It comes from the
	// store: treat it as untrusted. It is at most MaxRecord bytes long. A longer record, which
	// only another program can have written, is returned as an empty one.
	Record []byte
	// Label identifies the run that finished, see WithLabel. It comes from the store: treat it as
	// untrusted.
	Label string
	// Name is the name of the run that finished, see WithName. It is cut if the label is long.
	Name string
	// At is when the run ended, by the clock of the store. It is too early if an owner had the key
	// before the run began (WithOwner), and zero if the label is too long.
	At time.Time
}

func (e *DoneError) Error() string { return fmt.Sprintf("guard: %q is done", e.Key) }

// Is reports whether target is ErrDone.
func (e *DoneError) Is(target error) bool { return target == ErrDone }

// Ran returns false: the function did not run.
func (e *DoneError) Ran() bool { return false }

// A LossReason is how a lease was lost. The reasons are few and fixed, so they can be a label of a
// metric.
type LossReason string

const (
	// LossExpired is a lease that could not be renewed in time, or must not be (WithoutRenewal).
	LossExpired LossReason = "expired"
	// LossNotHeld is a lease that the store does not know any more: it was deleted or flushed, or
	// the key has another holder.
	LossNotHeld LossReason = "not_held"
	// LossSuspended is a lease that was held while the host was suspended.
	LossSuspended LossReason = "suspended"
	// LossMaxHold is a lease that was held for as long as WithMaxHold allows.
	LossMaxHold LossReason = "max_hold"
	// LossReleased is a lease that a run had joined, and that was released before the run ended.
	LossReleased LossReason = "released"
)

// A LostError is ErrLost with the details. If the function returned an error of its own, errors.Is
// and errors.As find that, too.
type LostError struct {
	Key    string
	Fence  uint64
	Reason LossReason
	// Late is how long after its deadline the run's context ended.
	Late time.Duration
	// Renew is why the last renewal failed, or nil. errors.Is does not find it.
	Renew error
	// Broken is who broke the lease, and why, if an operator did: "broken by alice: it hangs", see
	// the package inspect. The reason is LossNotHeld then. Do, Lease.Release, Hook.Loss and
	// Hook.RunEnd have it. The cause of the run's context does not, because the context ends before
	// the Guard asks the store. It comes from the store: treat it as untrusted.
	Broken string
	// Err is what the function returned, or nil. It is nil, too, if that was the cause of its
	// context.
	Err error

	broken func(context.Context) string // asks the store for Broken; or nil
	ran    bool
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("guard: lease on %q was lost: %s", e.Key, e.Reason)
	if e.Broken != "" {
		s += fmt.Sprintf(": %q", e.Broken)
	}
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

// explained returns the error with Broken, if ctx does not end before the store has answered.
func (e *LostError) explained(ctx context.Context) *LostError {
	if e.broken == nil || e.Broken != "" {
		return e
	}
	with := *e
	with.Broken = e.broken(ctx)
	return &with
}

// Ran reports whether the function ran. It did not if its context already held the key under a
// lease that was lost before.
func (e *LostError) Ran() bool { return e.ran }

// A ClosedError is ErrClosed with the details.
type ClosedError struct {
	Key string
	// Err is what the function returned if Close revoked its lease while it ran, or nil.
	Err error

	ran bool
}

func (e *ClosedError) Error() string {
	switch {
	case !e.ran:
		return fmt.Sprintf("guard: %q: guard is closed", e.Key)
	case e.Err == nil:
		return fmt.Sprintf("guard: %q: guard was closed, and revoked the lease", e.Key)
	}
	return fmt.Sprintf("guard: %q: guard was closed, and revoked the lease; the function returned: %v", e.Key, e.Err)
}

// Is reports whether target is ErrClosed.
func (e *ClosedError) Is(target error) bool { return target == ErrClosed }

// Unwrap returns the function's own error.
func (e *ClosedError) Unwrap() error { return e.Err }

// Ran reports whether the function ran: whether Close revoked its lease, rather than refused it.
func (e *ClosedError) Ran() bool { return e.ran }

// A MarkerError is ErrMarker with the details: the function ran and returned nil, but the store
// did not confirm the done marker that WithOnce promises. Either the store has said that there is
// no marker, or it could not be asked until the lease ended, or until the caller's context did.
// The Guard keeps trying in the background for as long as the marker can still be left.
type MarkerError struct {
	Key string
	// Err is why, usually a *StoreError. errors.Is does not find it, so that ErrMarker is never
	// taken for ErrStore.
	Err error
}

func (e *MarkerError) Error() string {
	return fmt.Sprintf("guard: %q has run, but its done marker may be missing: %v", e.Key, e.Err)
}

// Is reports whether target is ErrMarker.
func (e *MarkerError) Is(target error) bool { return target == ErrMarker }

// Ran returns true: the function ran.
func (e *MarkerError) Ran() bool { return true }

// A StoreError is ErrStore with the details: the backend, the call, the key, and the server's
// address if it is known. It also has a kind that can be a label of a metric, and the store's own
// error.
type StoreError = driver.StoreError

// A SettingError is a setting that cannot work, such as the value of an option. It names the
// setting. Nothing was done.
type SettingError = driver.SettingError

// A KeyError is a key that cannot be used. It names the key and the reason. Nothing was done.
type KeyError = driver.KeyError

var errNoFunction = &SettingError{Setting: "f", Reason: "must not be nil"}

// errAborted is the error of a call in which the Locker panicked, or the Locker or a hook ended
// the goroutine.
var errAborted = errors.New("the backend panicked, or the backend or a hook ended the goroutine")
