package guard

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPoll   = 10 * time.Millisecond
	longestPoll = 250 * time.Millisecond
)

// pollPause is how long to wait before the n-th further try for a busy key, whose holder has left
// until its lease ends: never past that.
func pollPause(n int, left time.Duration) time.Duration {
	pause := backoff(firstPoll, longestPoll, n)
	if left >= 0 && left < pause {
		return left + time.Millisecond + rand.N(time.Millisecond)
	}
	return pause
}

// retryPause is how long to wait after the n-th call in a row that the store did not answer.
func retryPause(n int) time.Duration { return backoff(20*time.Millisecond, time.Second, n) }

// backoff is base, doubled with each further try up to longest, of which a random half is taken off.
func backoff(base, longest time.Duration, try int) time.Duration {
	pause := base
	for i := 1; i < try && pause < longest; i++ {
		pause *= 2
	}
	pause = min(pause, longest)
	return pause/2 + rand.N(pause/2+1)
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
