// Package jitter has the random pauses of a Guard.
package jitter

import (
	cryptorand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// FirstPoll is the first pause between two requests for a busy key that nothing notifies of.
	FirstPoll = 10 * time.Millisecond
	// LongestPoll is the longest such pause.
	LongestPoll = 250 * time.Millisecond

	// yieldEach is how much later a queued claim asks without a notification, for each claim ahead
	// of it, so that those can ask first. longestYieldAhead bounds it.
	yieldEach         = 25 * time.Millisecond
	longestYieldAhead = 200 * time.Millisecond
	// longestYield bounds the pause by which a process leaves a free key to other processes.
	longestYield = 20 * time.Millisecond
)

// A Source has the random numbers of one Guard. They are seeded from crypto/rand, so that a test
// that fixes crypto/rand (testing/cryptotest) also fixes every pause; the functions of
// math/rand/v2 cannot be fixed. A Source is safe for concurrent use.
type Source struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// New returns a Source.
func New() *Source {
	var seed [32]byte
	_, _ = cryptorand.Read(seed[:]) // never fails
	return &Source{rng: rand.New(rand.NewChaCha8(seed))}
}

// UpTo returns a random duration from 0 to most, which must not be negative.
func (s *Source) UpTo(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rng.Int64N(int64(most) + 1))
}

// Backoff returns base, doubled with each further try up to longest, less a random part of up to
// half.
func (s *Source) Backoff(base, longest time.Duration, try int) time.Duration {
	pause := base
	for i := 1; i < try && pause < longest; i++ {
		pause *= 2
	}
	pause = min(pause, longest)
	return pause/2 + s.UpTo(pause/2)
}

// Retry is the pause after the n-th call in a row that the store did not answer.
func (s *Source) Retry(n int) time.Duration {
	return s.Backoff(20*time.Millisecond, time.Second, n)
}

// Poll is the pause before the n-th further request for a busy key whose lease ends in left, if
// nothing notifies the waiter. It never goes far beyond the end of the lease. A negative left is
// unknown.
func (s *Source) Poll(n int, left time.Duration) time.Duration {
	return s.until(left, s.Backoff(FirstPoll, LongestPoll, n))
}

// Notified is the pause before the next request for a busy key whose lease ends in left, if a
// notification is expected. It is at most half of the waiter's TTL and a little more, because a
// notification can be lost. A negative left is unknown.
func (s *Source) Notified(ttl, left time.Duration) time.Duration {
	return s.until(left, ttl/2+s.UpTo(ttl/20))
}

// until cuts the pause at the end of a lease.
func (s *Source) until(left, pause time.Duration) time.Duration {
	if left >= 0 && left < pause {
		return left + time.Millisecond + s.UpTo(time.Millisecond)
	}
	return pause
}

// Queued is the pause before the next request of a claim in the store's queue, if it is not
// notified. It is Notified, plus some time for each claim ahead, so that those can ask first.
func (s *Source) Queued(ttl, left time.Duration, ahead int) time.Duration {
	pause := ttl/2 + s.UpTo(ttl/20)
	if left >= 0 {
		pause = min(pause, left+time.Millisecond+min(time.Duration(ahead)*yieldEach, longestYieldAhead))
	}
	return pause
}

// Yield is the pause for which a process leaves a key that may be free to other processes, which
// have waited longer. A notification reaches all of them at once, and the store grants the key to
// the first that asks: without the pause that would always be the nearest process. A process that
// has missed few rounds since it last had the key pauses for a round trip per missing round. One
// that has missed more pauses for a part of a round trip.
func (s *Source) Yield(trip time.Duration, missed, rounds int) time.Duration {
	pause := trip / 2
	if missed < rounds {
		pause = time.Duration(rounds-missed) * trip
	}
	return min(pause+s.UpTo(trip/2), longestYield)
}
