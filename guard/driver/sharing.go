package driver

import (
	"math"
	"time"
)

const (
	// Unlimited, as Claim.MaxHolders, is any number of holders.
	Unlimited = math.MaxInt32
	// MaxSeats is the largest Claim.MaxHolders whose holders have a seat each.
	MaxSeats = 16
)

// WantedFor returns for how long a claim with that TTL is wanted after it was refused. A claim that
// waits is made again before that.
func WantedFor(ttl time.Duration) time.Duration { return ttl * 6 / 10 }
