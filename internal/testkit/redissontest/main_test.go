package redissontest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
)

const (
	soon = 5 * time.Second
	step = 5 * time.Millisecond

	lease = 20 * time.Second // longer than any test waits
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// take takes the lock for thread 1.
func take(t *testing.T, lock *redissontest.Lock, lease time.Duration) {
	t.Helper()
	_, ok, err := lock.TryLock(t.Context(), 1, lease)
	require.NoError(t, err)
	require.True(t, ok)
}

func giveBack(t *testing.T, lock *redissontest.Lock, thread int64) {
	t.Helper()
	released, err := lock.Unlock(t.Context(), thread)
	require.NoError(t, err)
	require.True(t, released)
}

type outcome struct {
	wait redissontest.Wait
	err  error
}

// waiter starts to wait for the lock and returns when it sleeps.
func waiter(t *testing.T, lock *redissontest.Lock, thread int64) <-chan outcome {
	t.Helper()
	before, done := lock.Waiting(), make(chan outcome, 1)
	go func() {
		wait, err := lock.Lock(t.Context(), thread, lease)
		done <- outcome{wait, err}
	}()
	require.Eventually(t, func() bool { return lock.Waiting() == before+1 }, soon, step)
	return done
}

// requireWoken waits until the waiter has the lock and requires that one message was what woke it.
func requireWoken(t *testing.T, done <-chan outcome) {
	t.Helper()
	select {
	case got := <-done:
		require.NoError(t, got.err)
		require.Equal(t, redissontest.Wait{Tries: 3, ByMessage: 1}, got.wait)
	case <-time.After(soon):
		require.FailNow(t, "the waiter sleeps on")
	}
}
