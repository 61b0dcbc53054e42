package redissontest

import (
	"context"
	"errors"
)

// A MultiLock is an RMultiLock: several locks that are taken in the order in which they are named.
type MultiLock struct{ locks []*Lock }

// MultiLock returns the RMultiLock over the RLocks of these names.
func (c *Client) MultiLock(names ...string) *MultiLock {
	m := &MultiLock{}
	for _, name := range names {
		m.locks = append(m.locks, c.Lock(name))
	}
	return m
}

// TryLock tries once, as tryLock() does. It takes the locks one after the other. If it misses one,
// it releases those that it has.
func (m *MultiLock) TryLock(ctx context.Context, thread int64) (ok bool, err error) {
	for i, l := range m.locks {
		_, ok, err := l.TryLock(ctx, thread, 0)
		if !ok || err != nil {
			return false, errors.Join(err, unlock(ctx, m.locks[:i], thread))
		}
	}
	return true, nil
}

// Unlock releases all of the locks.
func (m *MultiLock) Unlock(ctx context.Context, thread int64) error {
	return unlock(ctx, m.locks, thread)
}

func unlock(ctx context.Context, locks []*Lock, thread int64) error {
	var errs []error
	for _, l := range locks {
		_, err := l.Unlock(ctx, thread)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
