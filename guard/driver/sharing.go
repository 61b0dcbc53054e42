package driver

import (
	"math"
	"time"
)

const (
	// Any, as Claim.Among, is any number of holders.
	Any = math.MaxInt32
	// MaxSeats is the largest Claim.Among whose holders have a seat each.
	MaxSeats = 16
)

// A Sharer is a Locker that can grant a key to several claims at a time. It extends the methods of
// Locker, by Claim.Among, as follows.
//
// TryAcquire grants a claim if the key has fewer holders than the smallest Among of the claim and
// of the holders. A claim that was released, but whose minimum hold has not passed, is a holder.
// Each grant has a fence of its own, which is larger than all earlier ones. Two readers that a
// quorum grants the key at the same moment may have the same fence. Each grant also has a Seat that
// no other holder has, if Among is at most MaxSeats: the smallest that is free. As there are fewer
// than Among other holders, the seat is at most Among. Release of a claim with an Among above 1
// leaves no done marker.
//
// A claim that Waits, and is refused because of holders that share the key, is wanted: its answer
// says so (Grant.Wanted). For the time of WantedFor, the store refuses claims with a larger Among,
// so that one reader after another cannot keep a writer out for ever. Release of the claim, which
// then returns false, ends that, and so does its grant. One claim is wanted at a time: a claim with
// a smaller Among takes the place of another one.
//
// On a Locker that keeps owners, all claims of an owner count as one holder. A claim of an owner
// that holds the key is not kept away for a claim that is wanted. It has the fence and the seat of
// the owner. If its Among is smaller than those of the owner's other claims, it is a new grant,
// and Held is false. It has a new fence, which these claims then have as well.
//
// If the answer is Busy, Left is the time until the claim could be granted at the earliest.
type Sharer interface {
	// CheckAmong returns a *SettingError that says why the Locker cannot grant a key to n claims
	// at a time. n is Any, or at least 2. The answer never changes.
	CheckAmong(n int) error
}

// WantedFor returns for how long a claim with that TTL is wanted after it was refused. A claim that
// waits is made again before that.
func WantedFor(ttl time.Duration) time.Duration { return ttl * 6 / 10 }
