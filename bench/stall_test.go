package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// stalled is how long a benchmark goes on without progress. The longest pause of a locker that
// polls is a quarter of a second.
//
// The limit is for rueidislock with NoLoopTracking. There, an attempt that takes longer than its
// TryNextAfter of 20 ms, as it can on a busy machine, fails and deletes the key itself. It gets no
// notification of that, and waits for one until its caller's context ends.
const stalled = 3 * time.Second

// untilStalled returns a context that ends when progress has stood still, or at the limit. Callers
// take contexts of their own from it, as they have in a program.
func untilStalled(progress *atomic.Int64, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		began, moved, seen := time.Now(), time.Now(), progress.Load()
		ticker := time.NewTicker(stalled / 10)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				if at := progress.Load(); at != seen {
					seen, moved = at, now
				}
				if now.Sub(moved) > stalled || now.Sub(began) > limit {
					cancel()
					return
				}
			}
		}
	}()
	return ctx, cancel
}

// takeFor is take, again if it stalls. The lease's context goes on after it, for a lease can end
// with it.
func takeFor(l locker, key string) (held lease, err error) {
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		limit := time.AfterFunc(stalled, cancel)
		held, err = l.take(ctx, key)
		if err == nil && limit.Stop() {
			return held, nil
		}
		cancel()
		if err == nil {
			err = errors.Join(context.DeadlineExceeded, l.give(context.Background(), key, held))
		}
	}
	return nil, err
}
