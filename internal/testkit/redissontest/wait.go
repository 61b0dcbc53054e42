package redissontest

import (
	"context"
	"sync/atomic"
	"time"
)

// A Wait is how a call of [Lock.Lock] came by its lock.
type Wait struct {
	Tries     int // how often it asked for the lock
	ByMessage int // how often a message woke it
	ByTTL     int // how often the time was over that the holder had left
}

// Lock waits for the lock as lock(lease) does: it tries, subscribes, and tries again. From then on
// it tries only if a message wakes it or the holder's time is over. A lease of zero or less stands
// for the watchdog's 30 seconds. Lock also returns when ctx ends; Redisson has no such context.
// After this and other errors it has unsubscribed, and the lock may have been taken. The Wait is
// filled in any case.
func (l *Lock) Lock(ctx context.Context, thread int64, lease time.Duration) (w Wait, err error) {
	w.Tries++
	if _, ok, err := l.TryLock(ctx, thread, lease); ok || err != nil {
		return w, err
	}
	s, err := l.client.subscribe(ctx, l.Channel())
	if err != nil {
		return w, l.error("lock", err)
	}
	defer l.client.unsubscribe(s)
	for {
		w.Tries++
		left, ok, err := l.TryLock(ctx, thread, lease)
		if ok || err != nil {
			return w, err
		}
		woken, err := s.latch.acquire(ctx, left)
		switch {
		case err != nil:
			return w, l.error("lock", err)
		case woken:
			w.ByMessage++
		default:
			w.ByTTL++
		}
	}
}

// Waiting returns how many calls of Lock, on this client's locks of the name, sleep until they are
// woken. They have subscribed and been refused by then, so a test that sees them can release the
// lock and count on the message.
func (l *Lock) Waiting() int {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	if s := l.client.subscriptions[l.Channel()]; s != nil {
		return int(s.latch.waiting.Load())
	}
	return 0
}

// latch is the java.util.concurrent.Semaphore of a lock's waiters: a permit that nobody waits for
// is kept.
type latch struct {
	permits chan struct{}
	waiting atomic.Int64
}

func newLatch() *latch {
	// of no size, so it never fills and takes no room
	return &latch{permits: make(chan struct{}, 1<<20)}
}

func (l *latch) release(permits int64) {
	for range permits {
		l.permits <- struct{}{}
	}
}

// acquire reports whether it got a permit within the limit. A negative limit is none.
func (l *latch) acquire(ctx context.Context, limit time.Duration) (bool, error) {
	select {
	case <-l.permits: // even if the limit is zero
		return true, nil
	default:
	}
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	var over <-chan time.Time
	if limit >= 0 {
		over = time.After(limit)
	}
	select {
	case <-l.permits:
		return true, nil
	case <-over:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
