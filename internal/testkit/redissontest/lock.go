package redissontest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNotOwner is Redisson's IllegalMonitorStateException: the caller does not hold the lock that
// it unlocks.
var ErrNotOwner = errors.New("not the owner")

// watchdogTimeout is Redisson's lockWatchdogTimeout in ms. It is the lease of a caller that names
// none, and of each renewal.
const watchdogTimeout = 30_000

// unlockMessage is what the channel of a lock carries when it has become free.
const unlockMessage = 0

// A Lock is an RLock, as are the locks of an RReadWriteLock. Java uses the id of the calling
// thread; the methods of a Lock take a number instead. It is safe for concurrent use.
type Lock struct {
	client *Client
	name   string
	mode   mode
	// Redisson's internalLockLeaseTime, ms: the last lease until the lock is released
	lease atomic.Int64
}

// Channel is the name of the channel on which the lock's release is announced.
func (l *Lock) Channel() string {
	if l.mode != "" {
		return prefixName("redisson_rwlock", l.name)
	}
	return prefixName("redisson_lock__channel", l.name)
}

// Field is the field of the lock's hash that stands for a thread of this client.
func (l *Lock) Field(thread int64) string {
	if l.mode == writer {
		return l.thread(thread) + ":write"
	}
	return l.thread(thread)
}

// TryLock tries once, as tryLock() does, or tryLock(0, lease). A lease of zero or less stands for
// the watchdog's 30 seconds, or for the last lease of this object if its holds were not released.
// If another holder has the lock, TryLock returns the time left to that holder, or the bare number
// -1 if the key has no TTL. After an error the lock may have been taken.
func (l *Lock) TryLock(ctx context.Context, thread int64, lease time.Duration) (
	left time.Duration, ok bool, err error,
) {
	ms := lease.Milliseconds()
	if lease <= 0 {
		ms = l.lease.Load()
	}
	answer, err := l.sendAcquire(ctx, thread, ms).Int64()
	switch {
	case errors.Is(err, redis.Nil):
		if lease > 0 {
			l.lease.Store(ms)
		}
		return 0, true, nil
	case err != nil:
		return 0, false, l.error("lock", err)
	case answer < 0:
		return time.Duration(answer), false, nil
	}
	return time.Duration(answer) * time.Millisecond, false, nil
}

// Unlock releases one hold and reports whether it was the last one. If the thread has none, it
// returns ErrNotOwner. After another error the hold may have been released.
//
// Redisson does not wait for the DEL of the latch that follows. Unlock waits for it and ignores
// its result.
func (l *Lock) Unlock(ctx context.Context, thread int64) (released bool, err error) {
	latch := l.newLatch()
	released, err = l.unlock(ctx, thread, latch)
	if err == nil || errors.Is(err, ErrNotOwner) {
		_ = l.client.rdb.Del(ctx, latch).Err()
	}
	return released, err
}

// unlock is one request. The latch keeps its answer, so Redis answers a repeated request the same
// way.
func (l *Lock) unlock(ctx context.Context, thread int64, latch string) (released bool, err error) {
	answer, err := l.sendUnlock(ctx, thread, latch).Int64()
	if err != nil || answer == 1 {
		l.lease.Store(watchdogTimeout)
	}
	if errors.Is(err, redis.Nil) {
		err = fmt.Errorf("%s: %w", l.Field(thread), ErrNotOwner)
	}
	return answer == 1, l.error("unlock", err)
}

// ForceUnlock takes the lock from any holder and reports whether there was one.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	l.lease.Store(watchdogTimeout)
	answer, err := l.sendForceUnlock(ctx).Int64()
	return answer == 1, l.error("force unlock", err)
}

// Renew does what the watchdog does every ten seconds: it starts the TTL again at 30 seconds and
// reports whether the thread still has the lock.
func (l *Lock) Renew(ctx context.Context, thread int64) (bool, error) {
	held, err := l.sendRenew(ctx, thread).Int64Slice()
	return err == nil && held[0] == 1, l.error("renew", err)
}

// IsLocked reports whether anyone has the lock, by its existence. It is not that of a lock of an
// RReadWriteLock.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	n, err := l.client.rdb.Exists(ctx, l.name).Result()
	return n == 1, l.error("look at", err)
}

// IsHeldBy reports whether the thread has the lock: isHeldByThread.
func (l *Lock) IsHeldBy(ctx context.Context, thread int64) (bool, error) {
	held, err := l.client.rdb.HExists(ctx, l.name, l.Field(thread)).Result()
	return held, l.error("look at", err)
}

// HoldCount returns how many holds the thread has. It returns an error if the thread's field is
// not a decimal number.
func (l *Lock) HoldCount(ctx context.Context, thread int64) (int64, error) {
	n, err := l.client.rdb.HGet(ctx, l.name, l.Field(thread)).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, l.error("look at", err)
}

// RemainTimeToLive returns the time left to the holder of the lock. It returns the bare number -1
// if the key has no TTL, and -2 if nobody holds the lock.
func (l *Lock) RemainTimeToLive(ctx context.Context) (time.Duration, error) {
	left, err := l.client.rdb.PTTL(ctx, l.name).Result()
	return left, l.error("look at", err)
}

func (l *Lock) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redissontest: %s %q: %w", op, l.name, err)
}

func (l *Lock) newLatch() string {
	id := random16()
	return prefixName("redisson_unlock_latch", l.name) + ":" + hex.EncodeToString(id[:])
}

// latchTime is the TTL of a latch in ms at Redisson's defaults: for each of four retries a
// time-out of 3 s, and a delay that is drawn from 1 to 2 s.
func latchTime() int64 { return 4 * (3000 + 1000 + rand.Int64N(1001)) }

// prefixName makes a name that lies in the slot of the lock.
func prefixName(prefix, name string) string { return prefix + ":" + inBraces(name) }

func inBraces(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}
