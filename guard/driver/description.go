package driver

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// A Describer is a Locker that states facts about itself. They never change. A Guard reads them
// once, in New.
type Describer interface {
	// Describe returns the facts. It does not ask the store.
	Describe() Description
}

// A Description states what a Locker is and what it can do.
type Description struct {
	// Name is that of the backend. Defaults to the name of the Locker's package.
	Name string
	// Addr is the server's address, or the addresses of all servers, with commas. It is "" if it
	// does not distinguish the store.
	Addr string
	// ServerID asks the server for its identity, which does not depend on the address by which it
	// is reached. The answer is "" if the server does not state one. A quorum must not contain the
	// same server twice. nil if the Locker cannot ask.
	ServerID func(ctx context.Context) (string, error)
	// Err, a *SettingError, is why the Locker cannot work, or nil. guard.New returns it, so that
	// the New function of a backend can return a Locker alone. The other facts may be missing
	// then.
	Err error
	// CheckKey returns a *KeyError if the store cannot hold the key. Defaults to CheckKey.
	CheckKey func(key string) error
	// Owners means that the Locker may grant a key to a claim because another claim of the same
	// owner holds it. If it is not set, calls of different owners wait in one queue.
	Owners bool
	// Queue means that the Locker keeps a queue of waiting claims. See Subscriber.
	Queue bool
	// Polls means that the Locker notifies queued claims alone, although it is a Subscriber: the
	// other waiters poll.
	Polls bool
	// Shares returns a *SettingError that says why the Locker cannot grant a key to n claims at a
	// time, or nil. n is Unlimited, or at least 2. If Shares is nil, the Locker grants a key to
	// one claim at a time. Otherwise it extends the methods of Locker, by Claim.MaxHolders, as
	// follows.
	//
	// TryAcquire grants a claim if the key has fewer holders than the smallest MaxHolders of the
	// claim and of the holders. A claim that was released, but whose minimum hold has not passed,
	// is a holder. Each grant has a fence of its own, which is larger than all earlier ones. Two
	// readers that a quorum grants the key at the same moment may have the same fence. Each grant
	// also has a Seat that no other holder has, if MaxHolders is at most MaxSeats: the smallest
	// that is free. As there are fewer than MaxHolders other holders, the seat is at most
	// MaxHolders. Release of a claim with a MaxHolders above 1 leaves no done marker.
	//
	// A claim that waits (QueueMode.Waits), and is refused because of holders that share the key,
	// is wanted: its answer says so (HeldForClaim). For the time of WantedFor, the store refuses
	// claims with a larger MaxHolders, so that one reader after another cannot keep a writer out
	// forever. Release of the claim, which then returns false, ends that, and so does its grant.
	// One claim is wanted at a time: a claim with a smaller MaxHolders takes the place of another
	// one.
	//
	// On a Locker that keeps owners, all claims of an owner count as one holder. A claim of an
	// owner that holds the key is not kept away for a claim that is wanted. It has the fence and
	// the seat of the owner. If its MaxHolders is smaller than those of the owner's other claims,
	// it is a new grant, and Held is false. It has a new fence, which these claims then have as
	// well.
	//
	// If the answer is Busy, Left is the time until the claim could be granted at the earliest.
	Shares func(n int) error
}

// Describe returns the facts about a Locker, with their defaults. A Locker that is no Describer
// may keep owners.
func Describe(l Locker) Description {
	d := Description{Owners: true}
	if described, ok := l.(Describer); ok {
		d = described.Describe()
	}
	if d.Name == "" {
		d.Name, _, _ = strings.Cut(strings.TrimLeft(fmt.Sprintf("%T", l), "*"), ".")
	}
	if d.CheckKey == nil {
		d.CheckKey = CheckKey
	}
	return d
}

// IsNil reports whether l is nil, or holds a nil pointer.
func IsNil(l Locker) bool {
	if l == nil {
		return true
	}
	v := reflect.ValueOf(l)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Close closes l if it has Close. See single.Locker.Close.
func Close(l Locker) error {
	if c, ok := l.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
