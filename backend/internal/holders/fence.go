package holders

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Ahead is 2^17 fences, as in the backends on Redis: see AHEAD in backend/internal/redisstore. The
// clock takes 131 ms to advance by that many. No reserved fence is more than half of that ahead of
// the clock, and no granted hint is further behind it. A store that does not know its last fence
// may have lost it, so it grants the fence that is Ahead of its clock.
const Ahead = 1 << 17

// Clock returns a time as a fence: the seconds since 1970, shifted left by 20 bits, plus the
// microseconds.
func Clock(now time.Time) uint64 {
	return uint64(now.Unix())<<20 + uint64(now.Nanosecond()/1000) //nolint:gosec // not before 1970
}

// Fence returns a grant of the claim with its fence and the fences that it reserves. last is the
// last fence that was issued or reserved, and known means that the store cannot have lost a later
// one. end is the last fence that is in use or reserved from then on.
func Fence(c driver.Claim, last uint64, known bool, clock uint64) (grant driver.Answer, end uint64) {
	grant = driver.Answer{State: driver.Granted, Fence: max(last+1, clock), Reserved: max(c.Fences.Reserve, 0)}
	if c.Fences.Hint != 0 {
		grant.Clock = clock
	}
	if known && c.Fences.Hint > last && c.Fences.Hint <= clock && clock-c.Fences.Hint <= Ahead/2 {
		grant.Fence = c.Fences.Hint
	}
	if c.Fence == 0 {
		grant.Reserved = min(grant.Reserved, reservable(grant.Fence, clock))
	} else {
		grant.Fence = c.Fence // the fences that it reserves are in use already
	}
	return grant, max(last, grant.Fence+uint64(grant.Reserved)) //nolint:gosec // not negative
}

// reservable returns how many fences may be reserved above a fence. It is a sixteenth of the room
// below half of Ahead, because other claims reserve fences as well.
func reservable(fence, clock uint64) int {
	if limit := clock + Ahead/2; fence < limit {
		return int((limit - fence) / 16) //nolint:gosec // at most Ahead
	}
	return 0
}
