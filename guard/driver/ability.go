package driver

import (
	"context"
	"time"
)

// NotifyGrace is how long a queue (Subscriber) waits for a claim that it has notified. After that,
// the next claim in the queue takes over.
const NotifyGrace = 750 * time.Millisecond

// A Subscriber is a Locker that notifies waiters when it is worth asking again, so that they need
// not poll.
//
// If Description.Queue is set, the Locker also keeps the waiting claims of a key in a queue: first
// come, first served, across all processes. It extends the three methods of Locker, by Claim.Queue,
// as follows.
//
// TryAcquire of a Queued claim that is not granted joins the queue, or keeps its position there
// for the claim's TTL from now. The claim is granted when the key is free and the claim is first
// in the queue, or when it was notified. A YieldToQueue claim is granted only if the queue is
// empty. An Unqueued claim is granted like any claim on a key without a queue. A re-entry by an
// owner is granted whatever the queue holds. Release of a claim that was not granted leaves the
// queue. Release of a claim that was granted, unless it is Unqueued, notifies the first in the
// queue. So does a TryAcquire that finds the key free and is not first.
//
// A claim that was notified and does not ask within NotifyGrace loses its position to the next
// claim that asks. The queue skips the claims of a process that cannot be notified. They keep their
// positions, and are served when they ask after all. A process that is notified for a claim that it
// does not know takes the claim out of the queue at once: one that has no subscriber, and for
// which no call was under way within NotifyGrace. So a claim whose caller has gone delays nobody.
type Subscriber interface {
	// Subscribe calls notify when it is worth asking for the key again, and after what time. The
	// time is 0 after a release, and each time that the subscription begins, because earlier
	// notifications were missed. It begins again after a lost connection. If many wait, the store
	// may notify most of them of a release for later, in case those that ask before do not come. A
	// notification takes the place of an earlier one for later.
	//
	// If id is not "", the subscription is that of the queued claim with that ID. A time of 0 then
	// means that the claim may be first. A positive time means later, to check whether the claim
	// that was notified has come. A negative time means that it has come, so that the check is not
	// necessary.
	//
	// Subscribe returns at once. The subscription lasts until stop is called, which also returns
	// at once. notify is called from any goroutine, possibly once more after stop has returned. It
	// must not block.
	Subscribe(key, id string, notify func(in time.Duration)) (stop func())
}

// A Warner is a Locker that can say what makes its store lose leases, such as a server that evicts
// keys when its memory is full. A Guard with a hook for it asks after its first lease, and then at
// most once an hour. It reports what the last answer did not have.
type Warner interface {
	// Warnings asks the store, and returns what it found. It returns nothing if the store does not
	// say, or does not answer.
	Warnings(ctx context.Context) []error
}
