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

// WantedFor returns for how long a claim with that TTL is wanted after it was refused. A claim that
// waits is made again before that.
func WantedFor(ttl time.Duration) time.Duration { return ttl * 6 / 10 }
