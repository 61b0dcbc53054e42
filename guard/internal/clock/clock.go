// Package clock is the time of a Guard: instants on the monotonic clock, and how long the host has
// been suspended.
package clock

import (
	"math"
	"sync/atomic"
	"time"
)

// Never is an instant that does not come.
const Never = time.Duration(math.MaxInt64)

// anchorAge is how long a reading of the suspension clock may be used again as an anchor.
const anchorAge = 10 * time.Millisecond

// A Clock counts instants from its epoch on the monotonic clock. It is safe for concurrent use.
type Clock struct {
	// Suspension reads how long the host has been suspended since it booted. A test may replace it
	// before the Clock is used.
	Suspension func(Bound) time.Duration

	epoch time.Time

	// The last reading of Suspension is kept, because it costs a system call, which is expensive
	// compared with the rest of a claim.
	longest atomic.Int64 // the largest AtLeast reading
	readAt  atomic.Int64 // an instant before that reading
}

// A Bound is the side on which a reading of the suspension clock may err.
type Bound bool

const (
	AtLeast Bound = false
	AtMost  Bound = true
)

// New returns a Clock whose epoch is now.
func New() *Clock { return &Clock{Suspension: suspension, epoch: time.Now()} }

// Now returns the instant.
func (c *Clock) Now() time.Duration { return time.Since(c.epoch) }

// Time returns an instant as a time.Time.
func (c *Clock) Time(instant time.Duration) time.Time { return c.epoch.Add(instant) }

// Suspended returns how long the host has been suspended, at least. now is the instant.
func (c *Clock) Suspended(now time.Duration) time.Duration {
	suspended := c.Suspension(AtLeast)
	for {
		longest := c.longest.Load()
		if int64(suspended) <= longest || c.longest.CompareAndSwap(longest, int64(suspended)) {
			break
		}
	}
	c.readAt.Store(int64(now))
	return suspended
}

// Anchor returns how long the host had been suspended at the instant now, at most, for a request
// that is about to be sent. It may return a slightly older reading. That is sound, because
// suspended time only grows: an older reading is not larger than the current one. A caller that
// compares it with a later result of Suspended therefore sees every suspension since now. It may
// also see one from just before, and then gives a lease up without need.
func (c *Clock) Anchor(now time.Duration) time.Duration {
	if at := c.readAt.Load(); at != 0 && now-time.Duration(at) < anchorAge {
		return time.Duration(c.longest.Load())
	}
	return c.Suspension(AtMost)
}
