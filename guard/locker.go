package guard

import (
	"context"
	"time"
)

// A Locker stores leases. It makes one attempt per call and never waits, retries, renews or
// reports: all of that is done once, in Guard. What a Locker has to do in every detail is said by
// the suite in guardtest, which every backend passes.
//
// Contention is an answer, not an error. An error means that the store could not be asked, or that
// its answer was lost, so that the outcome is unknown. It should be a *StoreError, which tells a
// Guard whether asking again can help.
//
// A call returns soon after its context has ended, whatever the store does, also where the store
// does not answer at all. All methods are safe for concurrent use.
type Locker interface {
	// TryAcquire asks for the key once. Repeating a claim with the same ID is harmless, as the reply
	// to the first try may have been lost: it is granted again with the same fence, for c.TTL from
	// now, and counted once. A claim that was refused is over; a Guard asks again
	// with another ID.
	TryAcquire(ctx context.Context, c Claim) (Grant, error)
	// Renew makes the claim last c.TTL from now, and raises the key's fence to c.Fence if it is
	// lower, with c.Reserve further ones set aside behind it. It never brings back a claim that is gone: then it answers false.
	Renew(ctx context.Context, c Claim) (held bool, err error)
	// Release ends the claim and leaves behind what after says. It answers false, and changes
	// nothing, if the key is not held by this claim. Repeating a release that left something behind
	// answers true and changes nothing, whatever after says then. The store copies after.Record.
	Release(ctx context.Context, c Claim, after After) (held bool, err error)
}

// A Claim is one request for a key.
type Claim struct {
	// Key is what must not run twice. CheckKey says which keys there are.
	Key string
	// ID is random, in printable ASCII without spaces, and names this claim alone.
	ID string
	// Owner is who claims. Stores that keep owners grant a key to its owner again; where the user
	// named none it is the ID.
	Owner string
	// TTL is how long the claim lasts unless it is renewed. A store that counts in milliseconds
	// rounds it up.
	TTL time.Duration
	// Fence is the fence in use, for Renew and Release. In TryAcquire it is 0, but for a claim that holds
	// the key already on other nodes of a quorum: a key that is free here is then taken under that very fence.
	Fence uint64
	// Hint is a fence that would suit, for TryAcquire, or 0: nodes of a quorum to which it suits all grant the
	// same. A store grants it only if it knows its last fence, and the hint is larger than that, not ahead of
	// the store's clock and not far behind it; else, as always, one of its own.
	Hint uint64
	// Reserve is how many further fences TryAcquire sets aside behind the one that it grants to a claim which did not
	// hold the key, and Renew behind one to which it raises the key's. The next
	// holder's fence is larger than all of them.
	Reserve int
	// Label says who holds the key, for people and for links between traces. A done marker keeps that of the claim
	// which Release was given.
	Label string
	// Line says how the claim stands to those who wait for the key in line, for a Queuer. Other stores do not look at it.
	Line Line
}

// A Line says how a claim stands to those who wait for its key in line, see Queuer.
type Line uint8

const (
	// Beside is a claim that does not see the line, and whose release tells the line nothing.
	Beside Line = iota
	// Behind is a claim that is granted only if nobody stands in line, and does not stand there itself.
	Behind
	// Queued is a claim that stands in line until it is granted.
	Queued
)

// State is a store's answer to a claim.
type State uint8

const (
	// Busy says that another owner holds the key, or that its minimum hold has not passed.
	Busy State = iota
	// Granted says that the claim holds the key.
	Granted
	// Done says that the key's work has finished and that its marker still stands.
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

// A Grant is a store's answer to TryAcquire.
type Grant struct {
	State State
	// Fence, where granted, is larger than that of every earlier holder of the key.
	Fence uint64
	// Held, where granted, says that the claim, or another of its owner's, held the key already. Fence is
	// then that of old.
	Held bool
	// Clock, where granted to a claim with a Hint, is what the store's clock said, as a fence, or 0 if the store makes
	// its fences from something else: its seconds since 1970, shifted left by 20 bits, and microseconds.
	Clock uint64
	// Left is the time until the holder's lease ends (Busy) or the marker goes (Done). It is
	// negative where the store cannot tell.
	Left time.Duration
	// Record, where done, is what the finished run left.
	Record []byte
	// Label, where busy, is the holder's; where done, that of the run that finished.
	Label string
	// Holder, where busy, tells one holder from another: it is the ID or the owner of the claim. It is empty where
	// the store cannot tell.
	Holder string
	// Contested, where busy, says that nobody seems to hold the key: several claims met, and each got a part
	// of a quorum. It is worth asking again after a short and random pause.
	Contested bool
	// Ahead, where busy and the claim is Queued, is how many stand before it in line.
	Ahead int
	// Called, where busy, says that nobody holds the key: another claim stands before this one, has been called, and has Left to come.
	Called bool
}

// After says what a released key leaves behind. The zero value leaves nothing: the key is free.
type After struct {
	// Keep is how long the key stays taken: by a minimum hold, or by a done marker if Done is set. Where
	// it is not positive nothing is left, whatever the other fields say.
	Keep time.Duration
	// Done leaves a marker that the key's work has finished. Keep is then its window.
	Done bool
	// Record is kept with the marker.
	Record []byte
}

// A BatchRenewer is a Locker that can renew many claims in one round trip.
type BatchRenewer interface {
	// RenewBatch renews the claims, all of one TTL, and calls report once for each with its place in
	// claims, as soon as its answer is known: a claim whose node is slow does not hold up the
	// others'. It may call report from several goroutines, but from none after it has returned.
	RenewBatch(ctx context.Context, claims []Claim, report func(i int, held bool, err error))
}

// A Notifier is a Locker that can tell when a key may be free, so that those who wait for it need not ask again
// and again.
type Notifier interface {
	// Notify calls wake whenever the key may be free: after a release, and each time that it begins to listen, also
	// again after a connection was lost, as what was said before that was not heard. It returns at once, and
	// listens until stop is called, which returns at once, too. wake is called from any goroutine, possibly once
	// more when stop has returned, and must not block.
	Notify(key string, wake func()) (stop func())
}

// Ownerless is a Locker that can say that it keeps no owners: it never grants a key to a claim because another claim of its Owner
// holds it. Calls of different owners then wait in one line. A Locker that does not say so may keep them.
type Ownerless interface {
	// Ownerless reports whether that is so. It does not change.
	Ownerless() bool
}

// CallGrace is for how long a Queuer waits for a claim that was called, before its turn goes to the next.
const CallGrace = 750 * time.Millisecond

// A Queuer is a Locker that keeps claims which wait for a key in line, first come, first served, across all processes. It needs no more
// methods for that than one which tells a claim that its turn has come:
//
// TryAcquire of a Queued claim that is refused takes a place at the end of the line. Repeating it keeps the place, which is otherwise lost after the
// claim's TTL. A key that is free is granted to the first in line alone (and to its owner, who may hold it already).
// Release of a claim that was not granted gives up its place. Release of one that was, if it is not Beside, calls the first in line; so does
// TryAcquire that finds the key free and is not the first.
//
// A claim that was called and does not ask within CallGrace loses its place to the next who asks. One of whom the store knows that
// nobody hears it is passed over at once, and keeps its place if it asks after all.
type Queuer interface {
	// Queue calls called when the claim of that ID, which stands in line for the key, should ask again, and in what time: at once, as it may be its
	// turn, and each time that the Queuer begins to listen, also again after a connection was lost; later, to see whether
	// who was called has come; or, where that is negative, no more, as he has. It returns at once, and listens until stop is called, which returns at once,
	// too. called is called from any goroutine, possibly once more when stop has returned, and must not block.
	Queue(key, id string, called func(in time.Duration)) (stop func())
}

// A Server is a Locker that stands on a server, which can be told from others: a quorum must not have one twice.
type Server interface {
	// Addr returns the server's address, or "" if it has several or none that tells it from others.
	Addr() string
	// ServerID asks the server what tells it from all others, whatever it is reached by. It is "" if the server
	// does not say.
	ServerID(ctx context.Context) (string, error)
}

// A Starter is a Locker that takes calls without making the caller wait, for a quorum that asks several at once. done is
// called once, from any goroutine, with what TryAcquire or Release would return, or an error when no answer can come any
// more: that may be some time after ctx has ended. done must not block.
type Starter interface {
	StartAcquire(ctx context.Context, c Claim, done func(Grant, error))
	StartRelease(ctx context.Context, c Claim, after After, done func(held bool, err error))
}

// A KeyChecker is a Locker that has rules of its own for keys, in place of those of CheckKey.
type KeyChecker interface {
	// CheckKey returns a *KeyError if the store cannot hold the key.
	CheckKey(key string) error
}

// A Checker is a Locker that was built from settings which may be wrong. New asks it, so that a
// backend's own New can return a Locker alone.
type Checker interface {
	// Check returns a *SettingError if the Locker cannot work. It does not ask the store.
	Check() error
}

// An Unwrapper is a Locker around another one. A Guard finds the abilities of the inner one through
// it: BatchRenewer, Notifier, Ownerless, Queuer, Ledger, KeyChecker and Checker.
type Unwrapper interface {
	Unwrap() Locker
}

// Ability finds an ability, such as BatchRenewer, in a Locker or in those that it wraps (Unwrapper): the outermost.
func Ability[T any](l Locker) (T, bool) {
	for l != nil {
		if a, ok := l.(T); ok {
			return a, true
		}
		u, ok := l.(Unwrapper)
		if !ok {
			break
		}
		l = u.Unwrap()
	}
	var none T
	return none, false
}
