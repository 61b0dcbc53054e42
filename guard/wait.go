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
	// fewestTurns is how many turns of others a line that has had one lets pass at least before it asks as soon as they do.
	fewestTurns, mostTurns = 3, 100
	// longestYield bounds for how long a line leaves a key to others that may be free.
	longestYield = 20 * time.Millisecond
)

// yieldPause is how long a line leaves a key to others that may be free again, before its turn. The store tells all who wait at once,
// and answers whoever is the first to ask: that would always be the nearest. So those who have lost fewer rounds since they had the key ask later, by
// a round trip for each, and a part of one where they have lost many.
func (d *dice) yieldPause(trip time.Duration, lost int) time.Duration {
	pause := trip / 2
	if lost < fewestTurns {
		pause = time.Duration(fewestTurns-lost) * trip
	}
	return min(pause+d.upTo(trip/2), longestYield)
}

// A pace is how long a round trip takes.
type pace time.Duration

// note takes a round trip into account: at once if it is faster, and else a little, as it may have been slow for a reason of its own.
func (p *pace) note(took time.Duration) {
	if *p == 0 || took < time.Duration(*p) {
		*p = pace(took)
		return
	}
	*p += (pace(took) - *p) / 16
}
