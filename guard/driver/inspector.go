package driver

import (
	"context"
	"crypto/rand"
	"strings"
	"time"
)

// An Inspector is a Locker that can show what its store keeps, and change it for an operator.
//
// A call makes one attempt, and returns soon after its context has ended. After an error it is
// unknown whether the call changed anything. Repeating it is harmless.
type Inspector interface {
	// Show returns what the store keeps about the key, as it was at one moment. It changes
	// nothing.
	Show(ctx context.Context, key string) (KeyInfo, error)
	// Marked reports for each of the keys, of which there is one at least, whether it has a done
	// marker. It takes one round trip to each server. If it reports false, the store may have a
	// marker nevertheless, which Show then finds.
	Marked(ctx context.Context, keys []string) ([]bool, error)
	// Keys returns about n keys that begin with the prefix, in no order, and the cursor of the
	// next page. The first cursor is "", and so is the one after the last page. A key that exists
	// from the first page to the last is on one of them, and perhaps on several. The store may
	// have forgotten what it returns, or another program may use it.
	Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error)
	// Break takes the key from the claim of that ID: Renew and Release of that claim return false
	// from then on. It returns false, and changes nothing, if the claim does not hold the key.
	Break(ctx context.Context, key, id string, b Break) (bool, error)
	// Forget removes the done marker of the key, and notifies waiters. It returns false, and
	// changes nothing, if there is none.
	Forget(ctx context.Context, key string) (bool, error)
}

// A Break sets what remains of a claim that loses its key to an operator.
type Break struct {
	// ID and Label replace those of the claim. The key is kept until the claim would have ended,
	// as by a minimum hold, because the holder may not know yet. The ID is one of NewBrokenID.
	// Repeating a Break with the same ID returns true.
	ID, Label string
	// Now frees the key at once instead, and notifies waiters. It also ends a minimum hold. The
	// holder may not know, so that two hold the key until its next renewal.
	Now bool
}

// brokenID is how the IDs of NewBrokenID begin.
const brokenID = "broken-"

// NewBrokenID returns a random ID for a Break.
func NewBrokenID() string { return brokenID + rand.Text() }

// KeyInfo is what a store keeps about a key.
type KeyInfo struct {
	// Time is the clock of the store.
	Time time.Time
	// Holders hold the key, or keep it by their minimum hold.
	Holders []Holder
	// Marker is the done marker, or nil.
	Marker *Marker
	// Queue are the IDs of the claims in the queue (see Subscriber), the first one first.
	Queue []string
	// Wanted is the ID of the claim for which others are kept away (see Description.Shares), or
	// "".
	Wanted string
	// Subscribers is how many Lockers wait for a notification that the key is free (see
	// Subscriber). It is -1 if the store cannot tell.
	Subscribers int
	// Foreign describes what another program keeps in the place of the key. The key is busy then.
	Foreign string
}

// A Holder is a claim that holds a key.
type Holder struct {
	// ID, Owner and Label are those of the claim. The Owner is empty in a store that keeps none.
	ID, Owner, Label string
	// Fence is the fence in use. It is 0 if the store does not know it.
	Fence uint64
	// Left is the time until the lease, or the minimum hold, ends. It is negative if the store
	// cannot tell.
	Left time.Duration
	// MaxHolders is how many claims may hold the key while this one does, itself included,
	// or Unlimited.
	MaxHolders int
	// Seat is that of the Answer.
	Seat int
	// Kept means that the claim was released, or broken, and that its time has not passed.
	Kept bool
	// Foreign means that the claim is not one of this library's, such as a lock of Redisson's.
	Foreign bool
	// Nodes is how many nodes of a quorum know the claim. It is 0 without a quorum.
	Nodes int
}

// Broken reports whether an operator broke the claim (Break), so that the key is kept although the
// former holder may still run, until its next renewal.
func (h Holder) Broken() bool { return h.Kept && strings.HasPrefix(h.ID, brokenID) }

// Since returns when the fence was granted, by the clock of the store, or the zero time if the
// Holder has none. It is up to some 100 ms late if the store grants more than a million fences a
// second, or has lost its counter.
func (h Holder) Since() time.Time {
	if h.Fence == 0 {
		return time.Time{}
	}
	return time.Unix(int64(h.Fence>>20), int64(h.Fence&(1<<20-1))*1000) //nolint:gosec // 44 bits
}

// A Marker is a done marker.
type Marker struct {
	// Label identifies the run that finished.
	Label string
	// Name and DoneAt are those of guard.DoneError: the kind of work, and when it ended. A Guard
	// keeps them in the label, and sets them: a Locker leaves them empty.
	Name   string
	DoneAt time.Time
	// Left is the time until the marker expires. It is negative if the store cannot tell.
	Left time.Duration
	// Size is the length of the record in bytes.
	Size int
}

// A KeyState is what a key is, in a word.
type KeyState string

// The states of a key.
const (
	// KeyFree means that a claim would be granted, unless another claim is wanted or first in the
	// queue.
	KeyFree KeyState = "free"
	// KeyHeld means that claims hold the key.
	KeyHeld KeyState = "held"
	// KeyKept means that no claim holds the key any more, and that the time of a minimum hold, or
	// of a claim that was broken, has not passed. See Holder.Broken.
	KeyKept KeyState = "kept"
	// KeyDone means that the key has a done marker.
	KeyDone KeyState = "done"
	// KeyForeign means that another program uses the name.
	KeyForeign KeyState = "foreign"
)

// State returns what the key is, in a word.
func (i *KeyInfo) State() KeyState {
	switch {
	case i.Marker != nil:
		return KeyDone
	case len(i.Holders) > 0:
		for _, h := range i.Holders {
			if !h.Kept {
				return KeyHeld
			}
		}
		return KeyKept
	case i.Foreign != "":
		return KeyForeign
	default:
		return KeyFree
	}
}
