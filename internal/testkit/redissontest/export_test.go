package redissontest

import "context"

// NewLatch returns the name of a latch, for UnlockBy.
func (l *Lock) NewLatch() string { return l.newLatch() }

// UnlockBy is Unlock with a latch of the caller's, which stays: the same request, once more, finds
// it.
func (l *Lock) UnlockBy(ctx context.Context, thread int64, latch string) (bool, error) {
	return l.unlock(ctx, thread, latch)
}
