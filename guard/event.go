package guard

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Event is what all events have.
type Event struct {
	// Name is the kind of work (WithName), or "". Key is the key as the caller gave it: it may hold
	// personal data.
	Name, Key string
	// Owner is the owner of the claim: the value of WithOwner, or the claim's random ID.
	Owner string
	// TTL is the TTL of the lease.
	TTL time.Duration
	// Start is when the operation began.
	Start time.Time
	// Purpose is what the lease is for.
	Purpose Purpose
	// Dropped is how many events were dropped since the last one, because hooks were too slow. It
	// is 0 for events that no goroutine of the Guard's own reports, see Hook.
	Dropped int
}

// A Purpose is what a lease is for.
type Purpose uint8

const (
	// PurposeRun is the lease of a run.
	PurposeRun Purpose = iota
	// PurposeAuxiliary is an adapter's own lease, besides that of the run (Adapter.Auxiliary).
	PurposeAuxiliary
	// PurposeCandidate is the lease of a Candidate: its run is a term, and its acquire a campaign.
	PurposeCandidate
)

// A StoreAnswer is what an event reports of the store's answer to a claim. It is zero if there is
// none.
type StoreAnswer struct {
	// State says whether the key was granted, busy or done. Without an answer it is the zero value,
	// driver.Busy: look at Err first.
	State driver.State
	// Left is for how long the key stays busy or done at most, see driver.Answer. It is negative if
	// the store cannot tell.
	Left time.Duration
	// Label is the label of the holder, or of the run that has done the work.
	Label string
}

// A WaitEvent reports that a call begins to wait for a busy key.
type WaitEvent struct {
	Event
	StoreAnswer
}

// An AcquireEvent reports the end of an acquire.
type AcquireEvent struct {
	Event
	StoreAnswer // the last one
	// Duration is how long the acquire took.
	Duration time.Duration
	// Attempts is the number of requests to the store.
	Attempts int
	// Waits means that the call began to wait for a busy key. Waited is for how long it did.
	Waits  bool
	Waited time.Duration
	// Fence is the fence of the lease, and 0 if the claim was not granted.
	Fence uint64
	// Grant says how a call that has waited got the key. Previous is the label of the last holder
	// that it waited for. Both are "" if the claim was not granted.
	Grant    GrantReason
	Previous string
	// Err is nil if the claim was granted.
	Err error
}

// A GrantReason says how a call that waited for a busy key got it. It is "" if the call did not
// wait, or was notified of the release.
type GrantReason string

const (
	// GrantHandOff means that the lease went from one call of the Guard to this one, without the
	// store.
	GrantHandOff GrantReason = "hand_off"
	// GrantTakeover means that the lease of the previous holder had ended, as far as is known. That
	// holder has probably died.
	GrantTakeover GrantReason = "takeover"
	// GrantMissedWakeUp means that the call found out by itself that the key had been released,
	// although the backend notifies waiters. It is not used for a call that has waited for less
	// than a quarter of a second: that may not have subscribed yet.
	GrantMissedWakeUp GrantReason = "missed_wake_up"
)

// A SkipEvent reports that the function of a call will not run.
type SkipEvent struct {
	Event
	StoreAnswer
	// Waited is for how long the call waited for a busy key.
	Waited time.Duration
	// Err is a *BusyError or a *DoneError.
	Err error
}

// A LeaseEvent is what all events of a lease have.
type LeaseEvent struct {
	Event
	// Fence is the fence of the lease.
	Fence uint64
	// Renewals is how often the lease has been renewed. MaxUsed is the most of the TTL that had
	// passed when the answer to one of these renewals came.
	Renewals int
	MaxUsed  time.Duration
	// Origin is the context that AcquireStart returned for the lease.
	Origin context.Context //nolint:containedctx // it is what the event reports
}

// A RunEvent reports the start of a run.
type RunEvent struct {
	LeaseEvent
	// Joined means that the run takes place under a lease that its context already held.
	Joined bool
}

// A RunEndEvent reports the end of a run.
type RunEndEvent struct {
	RunEvent
	// Duration is how long the function took.
	Duration time.Duration
	// Aborted means that the function panicked or ended its goroutine.
	Aborted bool
	// LeaseEnded means that a lease of the run was lost or revoked before the function returned.
	// Err says which and why, see LostError and ClosedError.
	LeaseEnded bool
	// Err is what the call returns, or nil.
	Err error
}

// A RenewEvent reports a renewal.
type RenewEvent struct {
	LeaseEvent
	// Duration is how long the renewal took.
	Duration time.Duration
	// Used is how much of the TTL had passed when the answer came. It is 0 if the lease was lost.
	Used time.Duration
	// Failures is how many renewals in a row have failed.
	Failures int
	// Err is nil if the lease was renewed.
	Err error
}

// A LossEvent reports the loss of a lease. Start is when it was granted.
type LossEvent struct {
	LeaseEvent
	// Held is how long the lease was held.
	Held time.Duration
	// Err says why the lease was lost. It is never nil.
	Err *LostError
}

// A ReleaseEvent reports a release.
type ReleaseEvent struct {
	LeaseEvent
	// Duration is how long the release took, and Held how long the lease was held before it.
	Duration, Held time.Duration
	// Attempts is the number of requests to the store. It is 0 if the lease was handed off, or if
	// the store did not know it any more.
	Attempts int
	// HandedOff means that another call of the Guard got the lease, without the store.
	HandedOff bool
	// Err is nil if the lease was released.
	Err error
}

// A CallEvent reports a call to the store, or to a node of a quorum.
type CallEvent struct {
	Event
	StoreAnswer // of OpAcquire
	Op          driver.Op
	// Node is the address of the node of a quorum. It is "" for a call to the store. The backend
	// reports calls to nodes, not the Guard: see redlock.WithHook. They have a Start and no other
	// field of Event.
	Node string
	// Duration is how long the call took.
	Duration time.Duration
	// Err is nil if there was an answer.
	Err error
}

// An OrphanEvent reports that the work on an orphan begins or has ended.
type OrphanEvent struct {
	Event
	// Op is the call to the store that left the orphan.
	Op driver.Op
	// Pending means that the work begins. The fields that follow are then zero.
	Pending bool
	// Duration is how long the work took, and Attempts the number of requests to the store.
	Duration time.Duration
	Attempts int
	// Err is nil if the orphan was released.
	Err error
}
