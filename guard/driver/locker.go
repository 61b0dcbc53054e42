package driver

import (
	"context"
	"time"
)

const (
	// MinTTL is the shortest TTL of a lease. Below it, the margin for drifting clocks and late
	// timers would be most of the lease.
	MinTTL = 100 * time.Millisecond
	// MaxRecord is the longest record of a done marker in bytes.
	MaxRecord = 1 << 20
)

// A Locker stores leases. It makes one attempt per call. It never waits, retries, renews or
// reports: guard.Guard does all of that, once for every backend.
//
// Contention is an answer, not an error. An error means that the store could not be asked, or that
// its answer was lost, so the outcome is unknown. It should be a *StoreError, whose kind tells the
// Guard whether it is worth asking again.
//
// A call returns soon after its context has ended, even if the store does not answer at all. All
// methods are safe for concurrent use.
type Locker interface {
	// TryAcquire asks for the key once. Repeating a claim with the same ID is harmless, because
	// the reply to the first attempt may have been lost. A repeated claim is granted with the same
	// fence, for c.TTL from now, and counts once. A claim that was refused is over: the Guard asks
	// again with another ID.
	TryAcquire(ctx context.Context, c Claim) (Answer, error)
	// Renew sets the claim to expire c.TTL from now. If the key's fence is lower than c.Fence,
	// Renew raises it to c.Fence and reserves c.Fences.Reserve further ones above it. It never
	// brings back a claim that is gone: it returns false instead.
	Renew(ctx context.Context, c Claim) (held bool, err error)
	// Release ends the claim and leaves behind what after specifies. It returns false, and changes
	// nothing, if this claim does not hold the key. Repeating a release that left something behind
	// returns true and changes nothing, whatever after specifies then. The store copies
	// after.Record.
	Release(ctx context.Context, c Claim, after After) (held bool, err error)
}

// A Claim is one request for a key.
type Claim struct {
	// Key identifies what must not run twice. CheckKey states which keys are allowed.
	Key string
	// ID is random, is printable ASCII without spaces, and identifies this claim alone.
	ID string
	// Owner is the party that makes the claim. A backend that keeps owners grants a key to its
	// owner again. If the user named no owner, it is the ID.
	Owner string
	// TTL is how long the claim lasts unless it is renewed. A backend that counts in milliseconds
	// rounds it up.
	TTL time.Duration
	// Fence is the fence in use, for Renew and Release. In TryAcquire it is 0, except for a claim
	// that already holds the key on other nodes of a quorum. If the key is free on this node, the
	// node then grants it under exactly that fence, and reserves exactly Fences.Reserve above it.
	Fence uint64
	// Fences states which fences the claim asks for.
	Fences FenceRequest
	// Label identifies the holder, for people and for links between traces. A done marker keeps
	// the label of the claim that Release was given.
	Label string
	// Queue is whether the claim will be made again if it is refused, and its relation to the
	// queue that a Subscriber keeps.
	Queue QueueMode
	// MaxHolders is how many claims may hold the key at a time, this one included, or Unlimited. 0
	// is 1: the claim holds the key alone. It is the same in all calls for a claim. A Locker is
	// given more than 1 only if Description.Shares allows it.
	MaxHolders int
	// Repeated, of TryAcquire and Release, means that the store may know the claim although it was
	// not granted: an earlier TryAcquire was refused and left it queued or wanted, or had no
	// answer. Without it, a store need not look for what it keeps for the claim besides a lease.
	Repeated bool
}

// A FenceRequest states which fences a claim asks for, in addition to its Fence.
type FenceRequest struct {
	// Hint is a fence that would suit TryAcquire, or 0. All nodes of a quorum that the hint suits
	// grant the same fence. A store grants it only if it knows its last fence and if the hint is
	// larger than that, not ahead of the store's clock, and not far behind it. Otherwise it grants
	// a fence of its own.
	Hint uint64
	// Reserve is how many further fences TryAcquire should reserve above the one that it grants,
	// for hand-off inside the process. A claim that held the key already gets none. See
	// Answer.Reserved.
	Reserve int
}

// A QueueMode states how a claim waits, and its relation to the queue of waiters that the store
// keeps for its key. See Subscriber.
type QueueMode uint8

const (
	// Unqueued claims ignore the queue, and their release does not notify it. If they are refused,
	// they are not made again.
	Unqueued QueueMode = iota
	// Retried claims are Unqueued, but will be made again if they are refused.
	Retried
	// YieldToQueue claims are granted only if the queue is empty. They do not join it.
	YieldToQueue
	// Queued claims join the queue and stay in it until they are granted. They are made again.
	Queued
)

// Waits reports whether a claim that is refused will be made again. See Description.Shares.
func (m QueueMode) Waits() bool { return m == Retried || m == Queued }

// UsesQueue reports whether the claim respects the queue, so that its release notifies it.
func (m QueueMode) UsesQueue() bool { return m >= YieldToQueue }

// A State is a store's answer to a claim.
type State uint8

const (
	// Busy means that another owner holds the key, or that its minimum hold has not passed.
	Busy State = iota
	// Granted means that the claim holds the key.
	Granted
	// Done means that the work for the key has finished, and that its marker still exists.
	Done
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Busy:
		return "busy"
	case Granted:
		return "granted"
	case Done:
		return "done"
	}
	return "unknown"
}

// A Reason says why a claim is refused.
type Reason uint8

const (
	// HeldByOther means that another claim holds the key, or that its minimum hold has not passed.
	HeldByOther Reason = iota
	// HeldByProgram means that another program or library holds the key.
	HeldByProgram
	// HeldShared means that claims which share the key hold it, or that the store keeps this one
	// away for another one. The stores of a quorum may then name different claims as the Holder.
	HeldShared
	// HeldForClaim is HeldShared, and the store keeps other claims away for this one, which is to
	// be made again with the same ID, or released. See Description.Shares.
	HeldForClaim
	// OtherNotified means that nobody holds the key: a claim ahead of this one in the queue was
	// notified, and has Left to ask for the key.
	OtherNotified
	// Undecided means that nobody seems to hold the key: several claims are made at once, and none
	// was granted. The claim should be made again after Left, which is short and random.
	Undecided
	// Unsent is Undecided, and the Locker has not asked the store, because of these other claims.
	Unsent
)

// IsShared reports whether other claims that share the key hold it, or keep this one away.
func (r Reason) IsShared() bool { return r == HeldShared || r == HeldForClaim }

// IsUndecided reports whether nobody seems to hold the key.
func (r Reason) IsUndecided() bool { return r >= Undecided }

// An Answer is a store's answer to TryAcquire.
type Answer struct {
	State State
	// Reason, if Busy, says why. It is 0 otherwise.
	Reason Reason
	// Fence, if Granted, is larger than the fence of every earlier holder of the key.
	Fence uint64
	// Reserved, if Granted, is how many fences directly above Fence the store has reserved for the
	// holder: at most FenceRequest.Reserve. No other holder gets one of them, not even from a
	// store that has forgotten everything since. A store that makes its fences from its clock
	// therefore bounds how far ahead of the clock it reserves, and starts above that if it finds
	// no counter.
	Reserved int
	// Held, if Granted, means that this claim, or another claim of its owner, already held the
	// key. Fence is then the fence of that earlier grant. See also Async.
	Held bool
	// Clock, if a claim with a Hint was granted, is the store's clock as a fence: its seconds
	// since 1970, shifted left by 20 bits, plus microseconds. It is 0 if the store makes its
	// fences from something else.
	Clock uint64
	// Seat, if Granted, is the number that distinguishes the claim from the others that hold the
	// key, from 1 to Claim.MaxHolders. It is 0 if that is 1, or more than MaxSeats.
	Seat int
	// Left is the time until the holder's lease ends (Busy) or the marker expires (Done). It is
	// negative if the store cannot tell.
	Left time.Duration
	// Record, if Done, is the record that the finished run left.
	Record []byte
	// Label identifies the holder (Busy) or the run that finished (Done).
	Label string
	// Holder, if Busy, is the ID or the owner of the holder's claim, which distinguishes one
	// holder from the next. It is empty if the store does not know, for example if another program
	// has the key. Nothing may notify of its release then, so a Guard asks a few times a second.
	Holder string
	// Ahead, if Busy and the claim is Queued, is the number of claims ahead of it in the queue.
	Ahead int
}

// After specifies what a released key leaves behind. The zero value leaves nothing: the key is
// free.
type After struct {
	// Keep is how long the key stays taken: by a minimum hold, or by a done marker if Done is set.
	// If it is not positive, nothing is left, whatever the other fields say.
	Keep time.Duration
	// Done leaves a marker that the work for the key has finished. Keep is then its window.
	Done bool
	// Record is stored with the marker.
	Record []byte
}
