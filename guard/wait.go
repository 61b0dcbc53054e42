package guard

import (
	"context"
	"time"
)

const (
	firstPoll   = 10 * time.Millisecond
	longestPoll = 250 * time.Millisecond
)

// pollPause is how long to wait before the n-th further try for a busy key, whose holder has left
// until its lease ends: never past that.
func (d *dice) pollPause(n int, left time.Duration) time.Duration {
	pause := d.backoff(firstPoll, longestPoll, n)
	if left >= 0 && left < pause {
		return left + time.Millisecond + d.upTo(time.Millisecond)
	}
	return pause
}

// listenPause is how long to wait for a busy key of which a push will tell: to the end of its holder's lease, but no
// longer than half a TTL and a little, as a push can be lost.
func (d *dice) listenPause(ttl, left time.Duration) time.Duration {
	pause := ttl/2 + d.upTo(ttl/20)
	if left >= 0 && left < pause {
		return left + time.Millisecond + d.upTo(time.Millisecond)
	}
	return pause
}

// retryPause is how long to wait after the n-th call in a row that the store did not answer.
func (d *dice) retryPause(n int) time.Duration {
	return d.backoff(20*time.Millisecond, time.Second, n)
}

// contestPause is how long to wait after the n-th time that several claims met and none was granted: long beside
// the time that the store took to say so, and different for each.
func (d *dice) contestPause(n int, took time.Duration) time.Duration {
	return d.upTo(max(min(4*time.Millisecond<<n, 100*time.Millisecond), 4*took))
}

// sleep sleeps for d and returns true, or false at once when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	// yieldRounds is how many turns of others a line that has had one lets pass before it asks as soon as they do.
	yieldRounds = 3
	// longestYield bounds for how long a line leaves a key to others that may be free.
	longestYield = 20 * time.Millisecond
)

// yieldPause is how long a line leaves a key to others that may be free now. The store tells all who wait at once, and answers
// whoever is the first to ask: that would always be the nearest. So those who have lost fewer rounds since they had the key ask later, by
// a round trip for each, which took as long as took.
func (d *dice) yieldPause(took time.Duration, lost int) time.Duration {
	if lost >= yieldRounds {
		return 0
	}
	return min(time.Duration(yieldRounds-lost)*took+d.upTo(took/2), longestYield)
}
